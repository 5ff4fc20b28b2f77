-- One lock is four keys of one slot:
--   LOCK   who holds it. A string "<id>|<label>" for one holder, so that SET NX of any other client
--          respects it; a sorted set of ids by expiry (ms) for several, whose last member is the
--          mark of their mode, "#s" or "#p<limit>".
--   FENCE  "<last token, 16 digits>|<id of the last grant>", kept long after a release.
--   QUEUE  a sorted set of the ids that wait, by their arrival.
--   NOTES  a hash: w:<id> of a waiter, h:<id> of one of several holders, b:<id> of a broken lock,
--          with "<time (ms)>|<reason>", and "b:", when the last of these may go (ms);
--          g:<id> of a release that came before its acquisition, with its time (ms);
--          claim of a writer that waits for readers, where there is no queue.
local LOCK, FENCE, QUEUE, NOTES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Where QUEUE or NOTES may exist, "|q" stands behind FENCE, and behind LOCK if it is a string of
-- ours: the short ways of the scripts are closed.
local RETENTION = ARGV[1]
local DAY = 86400000
local call = redis.call

-- The time of the server, never that of a client.
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

-- Keeps NOTES for at least so many milliseconds.
local function keep_notes(ms)
  if call('PTTL', NOTES) < ms then
    call('PEXPIRE', NOTES, ms)
  end
end

-- Forgets locks that were broken so long ago that no holder asks for the reason any more. NOTES of a
-- lock in steady use never end by time alone.
local function forget_broken()
  local until_ = tonumber(call('HGET', NOTES, 'b:') or math.huge)
  if until_ > now then
    return
  end
  for _, field in ipairs(call('HKEYS', NOTES)) do
    if string.sub(field, 1, 2) == 'b:' then
      call('HDEL', NOTES, field)
    end
  end
end

-- Closes the short way.
local function flag()
  local fence = call('GET', FENCE) or (string.rep('0', 16) .. '|' .. string.rep('0', 32))
  if #fence == 49 then
    fence = fence .. '|q'
  end
  call('SET', FENCE, fence, 'PX', RETENTION)
  local value = redis.pcall('GET', LOCK)
  -- What another program stores here is compared by it as a whole.
  if type(value) == 'string' and string.match(value, '^%x+()|') == 33
    and string.sub(value, -2) ~= '|q' then
    call('APPEND', LOCK, '|q')
  end
end

-- What held() found, until LOCK changes.
local known, known_as, known_detail

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
  local mark = call('ZRANGE', LOCK, -1, -1)[1]
  if not string.match(mark, '^#[sp]%d*$') then
    -- Somebody else's sorted set: fails as any other type does, and changes nothing in it.
    call('GET', LOCK)
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', LOCK, '-inf', now)) do
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

-- Nobody holds the lock any more.
local function clear()
  call('DEL', LOCK)
  known, known_as, known_detail = true, nil, nil
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
  if call('HDEL', NOTES, 'h:') == 0 then
    return
  end
  for _, field in ipairs(call('HKEYS', NOTES)) do
    if string.sub(field, 1, 2) == 'h:' then
      call('HDEL', NOTES, field)
    end
  end
end

local function admits(mode)
  local as, detail = held()
  if not as then
    return true
  elseif mode == 's' then
    return as == 's'
  elseif mode == 'x' or as ~= mode then
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

-- What stands behind LOCK and FENCE now.
local function closed()
  return call('EXISTS', QUEUE, NOTES) > 0 and '|q' or ''
end

-- Makes `id` a holder of a lock that admits it, and gives its first token: above every earlier one
-- that this server remembers, and no less than its clock, which covers those that it forgot; another
-- clock may stand in for it.
local function grant(id, mode, label, ms, time)
  local fence = call('GET', FENCE)
  local last = fence and tonumber(string.sub(fence, 1, 16)) or 0
  local token, reserved = math.max(last + 1, time or micros), 0
  local suffix = closed()
  if suffix ~= '' and not held() then
    forget_holders()
    suffix = closed()
  end
  if mode == 'x' then
    reserved = 31
    local value = id .. '|' .. label .. suffix
    call('SET', LOCK, value, 'PX', ms)
    known, known_as, known_detail = true, 'x', value
  else
    call('ZADD', LOCK, 'inf', '#' .. mode, now + ms, id)
    call('HSET', NOTES, 'h:', '', 'h:' .. id, string.format('%.0f|%s', token, label))
    settle()
    -- Renewals know LOCK alone, so the notes have to last for as long as any lease.
    keep_notes(DAY)
    forget_broken()
    suffix = '|q'
  end
  local value = string.format('%016.0f|%s%s', token + reserved, id, suffix)
  call('SET', FENCE, value, 'PX', RETENTION)
  return token
end

-- Keeps the lease of a holder for so many milliseconds.
local function extend(id, ms)
  if held() == 'x' then
    call('PEXPIRE', LOCK, ms)
  else
    call('ZADD', LOCK, 'XX', now + ms, id)
    settle()
  end
end

-- The first token of a holder.
local function token_of(id)
  local note = call('HGET', NOTES, 'h:' .. id)
  if note then
    return tonumber(string.match(note, '^(%d+)|'))
  end
  return tonumber(string.sub(call('GET', FENCE) or '0', 1, 16)) - 31
end

local function dequeue(id)
  call('HDEL', NOTES, 'w:' .. id)
  return call('ZREM', QUEUE, id)
end

-- Grants the lock to those who wait, in the order of their arrival, for as long as it admits them,
-- and tells them; who has not been heard of in time is passed over. `me` is not told, it is here.
local function serve(me, ms)
  while true do
    local id = call('ZRANGE', QUEUE, 0, 0)[1]
    if not id then
      return
    end
    local note = call('HGET', NOTES, 'w:' .. id) or ''
    local alive, window, beat, mode, channel, label =
      string.match(note, '^(%d+)|(%d+)|(%d+)|(%w+)|([^|]*)|(.*)$')
    if not alive or tonumber(alive) < now then
      dequeue(id)
    elseif not admits(mode) then
      return
    else
      dequeue(id)
      local token = grant(id, mode, label, id == me and ms or tonumber(window))
      if id ~= me and channel ~= '' then
        -- A message that cannot be sent is a lost one.
        redis.pcall('PUBLISH', channel, string.format('%s|%s|%.0f', id, beat, token))
      end
      if mode == 'x' then
        return
      end
    end
  end
end
