
-- Records the token that the nodes agree on, where the id holds the lock.
-- A number is recorded for one id only, so that no two holders have the same token.
--
-- ARGV: retention of TOKENS (ms), id, token, last token that is set aside with it.
-- Gives 1; 0 if the id does not hold the lock; the last token of this node if that is in the way.
local id, token, top = ARGV[2], ARGV[3], tonumber(ARGV[4])
if not is_holder(id) then
  require_master(NOTES)
  return 0
end
local fence = call('GET', TOKENS) or ''
local last = tonumber(string.sub(fence, 1, 16)) or 0
if last > top or last == top and string.sub(fence, 18, 49) ~= id then
  return last
end
local value = string.format('%016.0f|%s', top, id)
call('SET', TOKENS, value, 'PX', ARGV[1])
local note = call('HGET', NOTES, 'h:' .. id)
if note then
  call('HSET', NOTES, 'h:' .. id, token .. string.sub(note, string.find(note, '|', 1, true), -1))
end
return 1
