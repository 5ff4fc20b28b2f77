
-- Gives the lease of the one holder another id, with a token and a ttl of its own. Idempotent by that id.
--
-- The lock is held from before to behind the script: no waiter is served, and the token, which is drawn
-- while it is held, is larger than that of every holder before, and smaller than that of every later one.
--
-- ARGV: id, the id that replaces it, ttl (ms).
-- Gives the token, or false if neither id holds the lock alone.
local id, new, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local as, value = held()
if as ~= 'x' then
  return false
end
local holder, label, told = string.match(value, '^(%x+)|([^|]*)|?(%d*)')
if holder ~= id and holder ~= new then
  return false
end
-- A server without memory denies XADD as the first write of a script, and not this.
extend(holder, ttl)
if holder == new then
  return tonumber(told)
end
local token = draw(1)
hold(new, 'x', label, call('PTTL', LOCK), token)
return token
