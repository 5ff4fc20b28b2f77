
-- Draws tokens for the next holders inside the process of the holder.
--
-- ARGV: id, and how many.
-- Gives the first one, or false if the id does not hold the lock alone.
local as, value = held()
if as ~= 'x' or string.sub(value, 1, 33) ~= ARGV[1] .. '|' then
  require_master(NOTES)
  return false
end
return draw(tonumber(ARGV[2]))
