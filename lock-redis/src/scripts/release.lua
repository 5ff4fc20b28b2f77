-- Releases the lock, or leaves its queue, and grants the lock to the first waiter.
--
-- KEYS: LOCK, TOKENS, QUEUE, NOTES. ARGV: id, and its ticket in the queue or "".
-- Gives 1 if the id held the lock, 2 if it is granted to a waiter now, else 0.
local value = redis.pcall('GET', KEYS[1])
local is_alone = type(value) == 'string' and string.sub(value, 1, 33) == ARGV[1] .. '|'
local popped
if is_alone then
  -- A queue of the wrong type is none.
  popped = redis.pcall('ZPOPMIN', KEYS[3])
  if not popped[1] then
    return redis.call('DEL', KEYS[1])
  end
end

