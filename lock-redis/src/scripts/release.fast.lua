-- Gives back the lock, or the place in its queue, if this id has it, and grants it to who is next.
--
-- ARGV: retention of FENCE (ms), id, "<id>|<label>" as far as it is known.
-- Gives 1 if the id held the lock, else 0.

-- The short way: one holder, and nobody waits.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[3] then
  redis.call('DEL', KEYS[1])
  return 1
end

