-- Extends leases; takes none that has ended.
--
-- KEYS: LOCK and NOTES of each lock, or LOCK alone for a single one. ARGV, for each lock: id, ttl (ms), "least" or
-- "exact", and what is to be stored, "<token>|<held for (ms)>" or "".
-- With "least", none is shorter afterwards: a request that is late must not cut a lease that was extended.
-- Gives for each 1 if it is held, "notes" if it is and the caller should keep NOTES, which are not among KEYS, 2 if
-- an administrator broke it, the error of a missing right, else 0.
local HOUR = 3600000
local call = redis.call
local now
local function time()
  if not now then
    local clock = call('TIME')
    now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  end
  return now
end
-- A denied command does not show that the lease is lost. A key of another type holds no lease.
local function is_denied(reply)
  return type(reply) == 'table' and string.sub(reply['err'], 1, 9) ~= 'WRONGTYPE'
end
local answers = {}
for n = 1, #ARGV / 4 do
  local lock, notes = KEYS[2 * n - 1], KEYS[2 * n]
  local id, ttl, rule, note = unpack(ARGV, 4 * n - 3, 4 * n)
  local value = redis.pcall('GET', lock)
  local held = 0
  if type(value) == 'string' then
    if string.sub(value, 1, 33) == id .. '|' then
      if rule == 'least' then
        ttl = math.max(tonumber(ttl), call('PTTL', lock))
      end
      if note ~= '' and string.find(value, '^%x+|[^|]*$') then
        local token, age = string.match(note, '^(%d+)|(%d+)$')
        value = string.format('%s|%s|%.0f', value, token, time() - age)
        -- A server without memory extends the lease all the same.
        if redis.pcall('SET', lock, value, 'PX', ttl)['ok'] then
          held = 1
        end
      end
      if held == 0 then
        held = call('PEXPIRE', lock, ttl)
      end
    end
  elseif is_denied(value) then
    held = value
  elseif value then
    -- A key of another type must not fail the renewal of the others.
    local expiry = redis.pcall('ZSCORE', lock, id)
    if is_denied(expiry) then
      held = expiry
    elseif type(expiry) == 'string' and tonumber(expiry) > time() then
      local renewed = now + tonumber(ttl)
      if rule == 'least' then
        renewed = math.max(renewed, tonumber(expiry))
      end
      -- A server without memory denies ZADD as the first write of a script, and not this. Only the last line sets
      -- when the key ends: a shorter time here, such as 0, would delete it with the leases of the other holders.
      call('PEXPIRE', lock, math.max(tonumber(ttl), 1000))
      call('ZADD', lock, 'XX', renewed, id)
      -- The last member is the mark of the mode.
      call('PEXPIREAT', lock, call('ZRANGE', lock, -2, -2, 'WITHSCORES')[2])
      held = 1
      -- NOTES are kept for a day by each grant, and by the first renewal in an hour for longer than any other
      -- script keeps them. The last renewal or grant was when the lease had a whole ttl left.
      if math.floor((expiry - ttl) / HOUR) < math.floor(now / HOUR) then
        if notes then
          redis.pcall('PEXPIRE', notes, 25 * HOUR)
        else
          held = 'notes'
        end
      end
    end
  end
  if held == 0 then
    -- By a key that every call has.
    require_master(lock)
    if notes and type(redis.pcall('HGET', notes, 'b:' .. id)) == 'string' then
      held = 2
    end
  end
  answers[n] = held
end
return answers
