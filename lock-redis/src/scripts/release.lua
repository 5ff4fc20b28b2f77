-- Releases the lock, or leaves its queue, and grants the lock to the first waiter.
--
-- KEYS: LOCK, TOKENS, QUEUE, NOTES. ARGV: id, and its ticket in the queue or "".
-- Gives 1 if the id held the lock, 2 if it is granted to a waiter now, else 0.
local value = redis.pcall('GET', KEYS[1])
local is_alone = type(value) == 'string' and string.sub(value, 1, 33) == ARGV[1] .. '|'
local first
if is_alone then
  local found = redis.pcall('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)
  first = found[1]
  if not first then
    -- A queue of the wrong type is none.
    redis.call('DEL', KEYS[1], found['err'] and KEYS[1] or KEYS[3])
    return 1
  end
end

