-- Runs each command of the other scripts where it changes nothing that lasts.
--
-- KEYS: those of a lock that nobody uses. Its counter is that of others, and is left as it is.
-- Gives command and error, in a row, of each that fails.
local LOCK, QUEUE, NOTES = KEYS[1], KEYS[3], KEYS[4]
local failed = {}

local function try(...)
  local answer = redis.pcall(...)
  local err = type(answer) == 'table' and answer.err
  if err then
    table.insert(failed, (...))
    table.insert(failed, err)
  end
  return not err
end

-- First, and with an end of its own: a server without memory denies the first write of a script.
try('SET', LOCK, '1', 'PX', 1)
-- What is made from here on has to go again.
if try('DEL', LOCK, QUEUE, NOTES) then
  if try('XADD', LOCK, '1-1', 't', '') then
    try('XSETID', LOCK, '1-2')
    redis.call('DEL', LOCK)
  end
  try('SET', LOCK, '1')
  try('HSET', NOTES, 'a', '1')
  redis.call('DEL', LOCK, NOTES)
end
try('TIME')
try('GET', LOCK)
try('GETRANGE', LOCK, 0, 1)
try('PTTL', LOCK)
try('PEXPIRE', LOCK, 1)
try('PEXPIREAT', LOCK, 1)
try('HGET', NOTES, 'a')
try('HDEL', NOTES, 'a')
try('HKEYS', NOTES)
try('ZADD', QUEUE, 'XX', 1, 'a')
try('ZCARD', QUEUE)
try('ZCOUNT', QUEUE, 0, 1)
try('ZPOPMIN', QUEUE)
try('ZRANGE', QUEUE, 0, -1)
try('ZRANGEBYSCORE', QUEUE, 0, 1)
try('ZREM', QUEUE, 'a')
try('ZSCORE', QUEUE, 'a')
return failed
