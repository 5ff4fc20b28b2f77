-- Gives back the lock, or the place in its queue, if this id has it, and grants it to who is next.
--
-- ARGV: retention of FENCE (ms), id.
-- Gives 1 if the id held the lock, else 0.

-- The short way: one holder, and nobody waits.
local value = redis.pcall('GET', KEYS[1])
local released = 0
if type(value) == 'string' and string.sub(value, 1, 33) == ARGV[2] .. '|' then
  redis.call('DEL', KEYS[1])
  local fence = redis.call('GET', KEYS[2])
  if not fence or #fence == 49 then
    return 1
  end
  released = 1
end

