
-- Takes the lock from all of its holders, remembers for them why, and grants it to who is next.
--
-- ARGV: retention of FENCE (ms), reason.
-- Gives what inspect gives.
local found = inspect()
if found then
  local longest = 1
  for n = 1, #found[2], 3 do
    local id, left = string.sub(found[2][n], 1, 32), found[2][n + 1]
    call('HSET', NOTES, 'b:' .. id, ARGV[2])
    call('HDEL', NOTES, 'h:', 'h:' .. id)
    longest = math.max(longest, left)
  end
  keep_notes(longest + 60000)
  clear()
  flag()
  serve()
end
return found
