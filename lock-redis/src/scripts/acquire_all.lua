-- Takes several locks, all or none, where nobody holds them or waits for them.
--
-- KEYS: four of each lock. ARGV: retention of FENCE (ms), then id, "<id>|<label>" and ttl (ms) of each
-- lock, then the time of the server (ms) after which nobody waits for the answer, if that is known.
-- Gives the tokens, false, or {"late", time of the server}.
-- A request that comes twice is answered as it was the first time.
local again = {}
for n = 1, #KEYS, 4 do
  local fence = redis.call('GET', KEYS[n + 1])
  local id = ARGV[2 + (n - 1) / 4 * 3]
  local value = redis.pcall('GET', KEYS[n])
  if fence and type(value) == 'string' and string.sub(value, 1, 33) == id .. '|' then
    table.insert(again, tonumber(string.sub(fence, 1, 16)) - 31)
  elseif value or fence and (#fence > 49 or string.sub(fence, 18) == id) then
    return false
  end
end
if #again > 0 then
  return #again * 4 == #KEYS and again
end
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local limit = tonumber(ARGV[#ARGV])
if limit and micros / 1000 > limit then
  return {'late', math.floor(micros / 1000)}
end
local tokens = {}
for n = 1, #KEYS, 4 do
  local at = 2 + (n - 1) / 4 * 3
  local fence = redis.call('GET', KEYS[n + 1])
  local token = math.max((fence and tonumber(string.sub(fence, 1, 16)) or 0) + 1, micros)
  redis.call('SET', KEYS[n], ARGV[at + 1], 'PX', ARGV[at + 2])
  local value = string.format('%016.0f|%s', token + 31, ARGV[at])
  redis.call('SET', KEYS[n + 1], value, 'PX', ARGV[1])
  table.insert(tokens, token)
end
return tokens
