-- Releases the lock, or leaves its queue, and grants the lock to the first waiter.
--
-- KEYS: LOCK, TOKENS, QUEUE, NOTES. ARGV: id, and its ticket in the queue or "".
-- Gives 1 if the id held the lock, 2 if it is granted to a waiter now, else 0.
local value = redis.pcall('GET', KEYS[1])
local is_alone = type(value) == 'string' and string.sub(value, 1, 33) == ARGV[1] .. '|'
local first
if is_alone then
  -- A holder that came from the queue probably has successors. For any other, PTTL is cheaper: it gives -2 if
  -- there is no queue.
  local found = {}
  if ARGV[2] ~= '' or redis.call('PTTL', KEYS[3]) ~= -2 then
    found = redis.pcall('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)
  end
  first = found[1]
  if not first then
    local wrong = found['err']
    if wrong and string.sub(wrong, 1, 9) ~= 'WRONGTYPE' then
      -- Fails again: without the right to it, whether there are waiters is unknown.
      redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)
    end
    -- A queue of the wrong type is none.
    redis.call('DEL', KEYS[1], wrong and KEYS[1] or KEYS[3])
    return 1
  end
end

