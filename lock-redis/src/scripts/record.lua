-- Stores the record of a key, "<token, 20 digits>|<version, 20 digits>|<bytes>".
--
-- Neither the token of what is stored nor, with one token, its version becomes smaller while it is kept: a
-- late copy of a write replaces no later one. Both are compared as texts, since a number of a script has
-- 53 bits.
--
-- KEYS: the record. ARGV: the record that is to be stored, keep (ms).
-- Gives 1; 0 if what is there has a larger token; its version, as a text, if it has the same token and that
-- is larger; false if it is no record.
local stored = redis.call('GET', KEYS[1])
if stored then
  local digits = string.rep('%d', 20)
  local token, version = string.match(stored, '^(' .. digits .. ')|(' .. digits .. ')|')
  if not token then
    return false
  end
  local new = string.sub(ARGV[1], 1, 20)
  if token > new then
    return 0
  end
  if token == new and version > string.sub(ARGV[1], 22, 41) then
    return version
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
