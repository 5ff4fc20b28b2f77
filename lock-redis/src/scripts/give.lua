-- Gives back a lock that nobody waits for; where that is not so, release knows more.
--
-- KEYS: LOCK. ARGV: "<id>|<label>".
-- Gives 1 if it is done, else 0.
-- A lock that several hold is no string.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
