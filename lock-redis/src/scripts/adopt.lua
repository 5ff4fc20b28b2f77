
-- Gives the lease of the one holder another id, with a token and a ttl of its own. Idempotent by that id.
--
-- The lock stays held throughout the script: no waiter is served, and the token, which is drawn
-- while it is held, is larger than that of every holder before, and smaller than that of every later one.
--
-- ARGV: id, the id that replaces it, ttl (ms), for how long a place without a heartbeat is alive (ms).
-- Gives the token, or false if neither id holds the lock alone.
local id, new, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local as, value = held()
if as ~= 'x' then
  require_master(NOTES)
  return false
end
local holder, label, told = string.match(value, '^(%x+)|([^|]*)|?(%d*)')
if holder ~= id and holder ~= new then
  require_master(NOTES)
  return false
end
-- A server without memory denies XADD as the first write of a script, and not this.
extend(holder, ttl)
local token = tonumber(told)
-- A lock that was taken by plain commands has no token yet.
if holder ~= new or not token then
  local last = token or 0
  token = draw(1)
  if token <= last then
    -- The counter was lost, and the clock is behind.
    token = last + 1
    local at = string.format('%.0f-%.0f', math.floor(token / 1000), token % 1000)
    call('XADD', TOKENS, 'MAXLEN', 0, at, 't', '')
  end
  hold(new, 'x', label, call('PTTL', LOCK), token)
end
-- A place of a repeated request has no heartbeat, so that it is dead some time after its arrival.
forget_places({ [id .. '|'] = true }, string.format('%.0f', now() - tonumber(ARGV[4])))
return token
