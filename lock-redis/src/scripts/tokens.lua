-- Raises the counter of fencing tokens to the clock of the server (us), below which nobody draws one.
--
-- KEYS: TOKENS.
-- Gives the last token, which is not drawn.
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
if last < micros then
  redis.call('SET', KEYS[1], string.format('%.0f', micros))
  return micros
end
return last
