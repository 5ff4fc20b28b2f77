-- Extends leases, of as many locks as there are KEYS; takes none that has ended.
--
-- ARGV: id and ttl (ms) for each key.
-- Gives 1 for each that is held, else 0.
local call = redis.call
local now
local answers = {}
for n, lock in ipairs(KEYS) do
  local id, ttl = ARGV[2 * n - 1], ARGV[2 * n]
  local value = redis.pcall('GET', lock)
  local held = 0
  if type(value) == 'string' then
    if string.sub(value, 1, 33) == id .. '|' then
      held = call('PEXPIRE', lock, ttl)
    end
  elseif value then
    if not now then
      local clock = call('TIME')
      now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    end
    local expiry = call('ZSCORE', lock, id)
    if expiry and tonumber(expiry) > now then
      -- A server without memory denies ZADD as the first write of a script, and not this.
      call('PEXPIRE', lock, ttl)
      call('ZADD', lock, 'XX', now + tonumber(ttl), id)
      -- The last member is the mark of the mode.
      call('PEXPIREAT', lock, call('ZRANGE', lock, -2, -2, 'WITHSCORES')[2])
      held = 1
    end
  end
  answers[n] = held
end
return answers
