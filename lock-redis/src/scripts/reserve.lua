
-- Sets tokens aside for the next holders inside the process of the holder.
--
-- ARGV: retention of FENCE (ms), id.
-- Gives the first of 32, or false if the id does not hold the lock alone.
local id = ARGV[2]
local as, value = held()
if as ~= 'x' or string.sub(value, 1, 33) ~= id .. '|' then
  return false
end
local fence = call('GET', FENCE)
local last = fence and tonumber(string.sub(fence, 1, 16)) or 0
local token = math.max(last + 1, micros)
call('SET', FENCE, string.format('%016.0f|%s%s', token + 31, id, closed()), 'PX', RETENTION)
return token
