
-- Makes the one holder the first of several, and lets those in who wait to share.
--
-- ARGV: retention of FENCE (ms), id, token of the holder.
-- Gives 1, or 0 if the id does not hold the lock.
local id, token = ARGV[2], ARGV[3]
local as, value = held()
if as == 's' then
  return call('ZSCORE', LOCK, id) and 1 or 0
end
if as ~= 'x' or string.sub(value, 1, 33) ~= id .. '|' then
  return 0
end
local left = math.max(call('PTTL', LOCK), 1)
call('DEL', LOCK)
call('ZADD', LOCK, 'inf', '#s', now + left, id)
call('HSET', NOTES, 'h:', '', 'h:' .. id, token .. '|' .. string.gsub(string.sub(value, 34), '|q$', ''))
settle()
keep_notes(DAY)
flag()
serve()
return 1
