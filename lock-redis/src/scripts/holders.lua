-- One lock is four keys of one slot:
--   LOCK    its holders. A string "<id>|<label>" for an exclusive one, so that SET NX of any other
--           client respects it; "|<token>|<since (ms)>" is appended by the first renewal, if not by
--           the grant. A sorted set of ids by expiry (ms) for several, whose last member is the mark
--           of their mode, "#s" or "#p<limit>" with the limit of the last one that came.
--   TOKENS  the counter of fencing tokens, which many locks share, see queue.lua; in a quorum that of
--           the lock alone, see vote.lua.
--   QUEUE   a stream of the waiters in the order of their arrival, see queue.lua.
--   NOTES   a hash: h:<id> of one of several holders; w:<id> the last heartbeat of a waiter;
--           b:<id> of a broken lock, with "<time (ms)>|<reason>", and "b:", when the last of these
--           may go (ms); in a quorum g:<id> of a release that came before its vote, with its time (ms),
--           and claim of a writer that waits for readers.
local LOCK, TOKENS, QUEUE, NOTES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DAY = 86400000
local call = redis.call

-- The time of the server in us and in ms, never that of a client. Read on first use: many calls need none.
local clock
local function micros()
  clock = clock or call('TIME')
  return clock[1] * 1000000 + clock[2]
end

local function now()
  return math.floor(micros() / 1000)
end

-- Keeps NOTES for at least so many milliseconds.
local function keep_notes(ms)
  if call('PTTL', NOTES) < ms then
    call('PEXPIRE', NOTES, ms)
  end
end

-- Forgets the notes of a kind; with `ms`, only those whose time is more than `ms` milliseconds ago.
local function forget(kind, ms)
  for _, field in ipairs(call('HKEYS', NOTES)) do
    if string.sub(field, 1, 2) == kind then
      local time = ms and string.match(call('HGET', NOTES, field), '^%d+')
      if not ms or time and time + ms < now() then
        call('HDEL', NOTES, field)
      end
    end
  end
end

-- Forgets locks that were broken so long ago that no holder asks for the reason any more. NOTES of a
-- lock in steady use never end by time alone.
local function forget_broken()
  local until_ = tonumber(call('HGET', NOTES, 'b:') or math.huge)
  if until_ <= now() then
    forget('b:')
  end
end

-- What held() found, until LOCK changes. A LOCK that is released and not yet deleted is stale.
local known, known_as, known_detail
local stale = false

-- LOCK with several holders ends with the last of them.
local function settle()
  known = false
  local latest = call('ZRANGE', LOCK, -2, -1, 'WITHSCORES')
  if #latest < 4 then
    call('DEL', LOCK)
  else
    call('PEXPIREAT', LOCK, latest[2])
  end
end

-- The mode in which LOCK is held, with its value or the number of its holders; nil if it is free.
local function look()
  local value = redis.pcall('GET', LOCK)
  if type(value) == 'string' then
    return 'x', value
  end
  if not value then
    return nil
  end
  if string.sub(value['err'], 1, 9) ~= 'WRONGTYPE' then
    -- Fails as it has before, for example without the right to it.
    call('GET', LOCK)
  end
  local mark = call('ZRANGE', LOCK, -1, -1)[1]
  if not string.match(mark, '^#[sp]%d*$') then
    -- Somebody else's sorted set: fails as any other type does, and changes nothing in it.
    call('GET', LOCK)
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', LOCK, '-inf', now())) do
    call('ZREM', LOCK, id)
    call('HDEL', NOTES, 'h:' .. id)
  end
  local count = call('ZCARD', LOCK) - 1
  if count < 1 then
    call('DEL', LOCK)
    call('HDEL', NOTES, 'h:')
    return nil
  end
  return string.sub(mark, 2), count
end

local function held()
  if not known then
    known_as, known_detail = look()
    known = true
  end
  return known_as, known_detail
end

-- Nobody holds the lock any more. The next grant overwrites LOCK, or purge() deletes it.
local function clear()
  known, known_as, known_detail, stale = true, nil, nil, true
end

local function purge()
  if stale then
    call('DEL', LOCK)
    stale = false
  end
end

-- One of several holders is gone.
local function leave(id)
  call('ZREM', LOCK, id)
  call('HDEL', NOTES, 'h:' .. id)
  settle()
  if not held() then
    call('HDEL', NOTES, 'h:')
  end
end

-- Forgets holders whose leases ended together with LOCK. "h:" says that there were any.
local function forget_holders()
  if call('HDEL', NOTES, 'h:') == 1 then
    forget('h:')
  end
end

local function admits(mode)
  local as, detail = held()
  if not as then
    return true
  elseif mode == 's' then
    return as == 's'
  elseif mode == 'x' or string.sub(as, 1, 1) ~= 'p' then
    return false
  end
  return detail < tonumber(string.sub(mode, 2))
end

local function is_holder(id)
  local as, detail = held()
  if as == 'x' then
    return string.sub(detail, 1, 33) == id .. '|'
  end
  return as and call('ZSCORE', LOCK, id)
end

-- The ms until LOCK comes free by time alone; nil if it is free.
local function free_in()
  local as = held()
  if as == 'x' then
    return call('PTTL', LOCK)
  end
  return as and tonumber(call('ZRANGE', LOCK, 0, 0, 'WITHSCORES')[2]) - now()
end

-- Makes `id` a holder of a lock that admits it.
local function hold(id, mode, label, ms, token)
  if mode == 'x' then
    -- Tokens follow the clock.
    local value = string.format('%s|%s|%.0f|%.0f', id, label, token, math.floor(token / 1000))
    call('SET', LOCK, value, 'PX', ms)
    known, known_as, known_detail, stale = true, 'x', value, false
    return
  end
  local as = held()
  -- NOTES first: where it is not a hash, nothing has changed when this fails.
  if not as then
    forget_holders()
  end
  call('HSET', NOTES, 'h:', '', 'h:' .. id, string.format('%.0f|%s', token, label))
  if not as then
    purge()
  elseif as ~= mode then
    call('ZREM', LOCK, '#' .. as)
  end
  call('ZADD', LOCK, 'inf', '#' .. mode, now() + ms, id)
  settle()
  -- Most renewals leave NOTES alone, which have to last for as long as any lease.
  keep_notes(DAY)
  forget_broken()
end

-- Keeps the lease of a holder for so many milliseconds.
local function extend(id, ms)
  if held() == 'x' then
    call('PEXPIRE', LOCK, math.max(ms, call('PTTL', LOCK)))
  else
    call('ZADD', LOCK, 'XX', math.max(now() + ms, tonumber(call('ZSCORE', LOCK, id))), id)
    settle()
  end
end

