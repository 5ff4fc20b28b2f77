
-- Makes the one holder the first of several, and lets those in who wait to share.
--
-- ARGV: id, token of the holder.
-- Gives 1; if the id does not hold the lock, 2 if an administrator broke it, else 0.
local id, token = ARGV[1], ARGV[2]
local function lost()
  require_master(NOTES)
  return call('HGET', NOTES, 'b:' .. id) and 2 or 0
end
local as, value = held()
if as == 's' then
  if not call('ZSCORE', LOCK, id) then
    return lost()
  end
  -- Sets the expiry that it has: the replicas that acknowledge this write have the downgrade as well. From Redis
  -- 7.2 on, WAIT counts every replica on a connection that has written nothing.
  settle()
  return 1
end
if as ~= 'x' or string.sub(value, 1, 33) ~= id .. '|' then
  return lost()
end
-- hold() deletes LOCK and creates it again. The server may refuse the second step: the user lacks the right, or the
-- slot is moving and a missing key belongs to another server. So this tries ZADD first, on a key of the same slot that
-- never exists. XX makes it write nothing.
local absent = NOTES .. '-'
local added = redis.pcall('ZADD', absent, 'XX', 0, '')
local why = type(added) == 'table' and added['err'] or ''
if string.find(why, 'non local key', 1, true) or string.find(why, 'run th', 1, true) then
  call('ZADD', absent, 'XX', 0, '')
end
local left = math.max(call('PTTL', LOCK), 1)
local label = string.match(value, '^%x+|([^|]*)')
clear()
hold(id, 's', label, left, token)
serve()
return 1
