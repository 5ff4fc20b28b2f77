-- QUEUE is a stream. The id of an entry is the ticket of a waiter, "<ms>-<number>": its arrival by the
-- clock of the server. The value is
--   "<id>|<alive for ms>|<lease of a grant, ms>|<heartbeat>|<mode>|<channel>|<label>".
-- A later heartbeat is a field of NOTES, "<time (ms)>|<heartbeat>|<channel>".
-- A release reads QUEUE, so a waiter may join one that exists by XADD alone. An empty QUEUE is kept for
-- that, until the next release or its expiry.

-- TOKENS is a stream, whose last id "<ms>-<number>" is the last token, ms * 1000 + number. It is empty
-- but for the last few entries, which mean nothing. XADD draws one that is above it and not behind the
-- clock. A number of 1000 or more would be a token of the next millisecond, and is given to nobody.
--
-- A stream that was lost begins 2 ms after the clock, in microseconds: tokens of the same millisecond may be
-- drawn already, and a block reaches into the next one.

-- Gives the first of so many tokens, at most 256.
local function draw(count)
  local id = redis.pcall('XADD', TOKENS, 'NOMKSTREAM', 'MAXLEN', 0, '*', 't', '')
  local ms, number
  if id == false then
    local start = micros() + 2000
    -- 0 would say that the clock is there.
    ms, number = math.floor(start / 1000), math.max(start % 1000, 1)
    call('XADD', TOKENS, string.format('%.0f-%.0f', ms, number), 't', '')
  else
    if type(id) ~= 'string' then
      -- Fails again, but on Redis 6.0, which has no NOMKSTREAM.
      id = call('XADD', TOKENS, 'MAXLEN', 0, '*', 't', '')
    end
    ms, number = string.match(id, '^(%d+)-(%d+)$')
    ms, number = tonumber(ms), tonumber(number)
  end
  local first, last = number, number + count - 1
  if last > 999 then
    ms, first, last = ms + 1, 0, count - 1
  end
  if last ~= number then
    call('XADD', TOKENS, 'MAXLEN', 0, string.format('%.0f-%.0f', ms, last), 't', '')
  end
  return ms * 1000 + first
end

-- The parts of the value of an entry, nil if it is no waiter.
local function parts(value)
  return string.match(value, '^(%x+)|(%d+)|(%d+)|(%d+)|(%w+)|([^|]*)|(.*)$')
end

-- When the waiter with this ticket came, in ms.
local function came(ticket)
  return tonumber(string.match(ticket, '^%d+'))
end

local function first_waiter()
  return call('XRANGE', QUEUE, '-', '+', 'COUNT', 1)[1]
end

-- The ticket of the id, if it is between these.
local function ticket_of(id, from, to)
  for _, entry in ipairs(call('XRANGE', QUEUE, from, to)) do
    if string.sub(entry[2][2], 1, 33) == id .. '|' then
      return entry[1]
    end
  end
end

-- Whether a waiter may have a heartbeat besides its arrival. One that listens has none so soon.
local function has_heartbeat(ticket, channel, at)
  return channel == '' or math.abs(at - came(ticket)) > 100
end

-- The last sign of life of a waiter, in ms, with its number and channel, and its note if it has one.
local function last_heartbeat(ticket, id, beat, channel)
  local note = call('HGET', NOTES, 'w:' .. id)
  if not note then
    return came(ticket), beat, channel
  end
  local last, later, where = string.match(note, '^(%d+)|(%d+)|(.*)$')
  return tonumber(last), later, where, note
end

-- Removes up to 8 waiters behind the first one whose last heartbeat is long ago. No release reaches them
-- while the first one waits.
local function bury(first)
  for n, entry in ipairs(call('XRANGE', QUEUE, first, '+', 'COUNT', 9)) do
    local id, alive, _, beat, _, channel = parts(entry[2][2])
    if n > 1 and id and last_heartbeat(entry[1], id, beat, channel) + 10 * alive < now() then
      call('XDEL', QUEUE, entry[1])
      call('HDEL', NOTES, 'w:' .. id)
    end
  end
end

-- Grants the lock to waiters in the order of their arrival, for as long as it admits them, and
-- publishes it. Removes waiters whose heartbeat is overdue, and entries of `gone`, the id that is released.
-- `entry` is the first one, if it is known. `me` needs no message; gives its token.
local function serve(gone, entry, me, ms)
  local mine, token
  entry = entry or first_waiter()
  while entry do
    local ticket = entry[1]
    local id, alive, window, beat, mode, channel, label = parts(entry[2][2])
    if not held() then
      token = token or draw(1)
    end
    -- A token is not behind the clock: a waiter that is alive by the token is alive.
    local at = token and token % 1000 == 0 and token / 1000 or now()
    local last, note = came(ticket)
    if id and has_heartbeat(ticket, channel, at) then
      at = now()
      last, beat, channel, note = last_heartbeat(ticket, id, beat, channel)
    end
    -- A second place of a holder, by a request that came twice, must not shorten its lease.
    local lives = id and id ~= gone and last + alive >= at and not is_holder(id)
    if lives then
      if not admits(mode) then
        break
      end
      token = token or draw(1)
      -- Before it gives up its place: a grant to one of several fails where NOTES is not a hash.
      hold(id, mode, label, id == me and ms or tonumber(window), token)
    end
    call('XDEL', QUEUE, ticket)
    if note then
      call('HDEL', NOTES, 'w:' .. id)
    end
    if lives then
      if id == me then
        mine = token
      elseif channel ~= '' then
        -- A message that cannot be sent is a lost one.
        redis.pcall('PUBLISH', channel, string.format('%s|%s|%.0f', id, beat, token))
      end
      if mode == 'x' then
        return mine
      end
      token = nil
    end
    entry = first_waiter()
  end
  if not entry then
    call('DEL', QUEUE)
    purge()
  end
  return mine
end

-- Serves when nobody holds the lock any more. Where no waiter can be granted it, it is free all the same.
local function serve_free(gone, entry)
  clear()
  if not pcall(serve, gone, entry) then
    -- A server without memory draws no token as the first write of a script.
    purge()
    serve(gone)
  end
end

