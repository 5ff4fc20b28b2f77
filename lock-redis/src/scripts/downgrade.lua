
-- Makes the one holder the first of several, and lets those in who wait to share.
--
-- ARGV: id, token of the holder.
-- Gives 1, or 0 if the id does not hold the lock.
local id, token = ARGV[1], ARGV[2]
local as, value = held()
if as == 's' then
  return call('ZSCORE', LOCK, id) and 1 or 0
end
if as ~= 'x' or string.sub(value, 1, 33) ~= id .. '|' then
  return 0
end
local left = math.max(call('PTTL', LOCK), 1)
local label = string.match(value, '^%x+|([^|]*)')
clear()
hold(id, 's', label, left, token)
serve()
return 1
