-- A member of QUEUE is "<id>|<alive for ms>|<lease of a grant, ms>|<heartbeat>|<mode>|<channel>|<label>",
-- its score the ticket of the waiter: when it came, in microseconds of the server. A later heartbeat
-- is a field of NOTES, "<time (ms)>|<heartbeat>|<channel>".

-- TOKENS is an empty stream, whose last id "<ms>-<number>" is the last token, ms * 1000 + number. XADD
-- draws one that is above it and not behind the clock, also where the stream was lost. A number of
-- 1000 or more would be a token of the next millisecond, and is given to nobody.

-- Gives the first of so many tokens.
local function draw(count)
  local ms, number = now, micros - now * 1000
  if number + count > 1000 then
    ms, number = ms + 1, 0
  end
  local first = string.format('%.0f-%.0f', ms, number)
  local last = count - 1
  if type(redis.pcall('XADD', TOKENS, 'MAXLEN', 0, first, 't', '')) ~= 'string' then
    -- Tokens are ahead of the clock.
    first = call('XADD', TOKENS, 'MAXLEN', 0, '*', 't', '')
    ms, number = string.match(first, '^(%d+)-(%d+)$')
    if number + count > 1000 then
      ms, number, last = ms + 1, 0, count
    end
  end
  if last > 0 then
    call('XSETID', TOKENS, string.format('%.0f-%.0f', ms, number + count - 1))
  end
  return ms * 1000 + number
end

local function grant(id, mode, label, ms)
  local token = draw(1)
  hold(id, mode, label, ms, token)
  return token
end

-- The parts of a member that follow the id: for how long it is alive, lease of a grant, heartbeat,
-- mode, channel, label.
local function parts(member)
  return string.match(member, '^%x+|(%d+)|(%d+)|(%d+)|(%w+)|([^|]*)|(.*)$')
end

-- The member of QUEUE with this ticket, if it is that of the id.
local function member_of(id, ticket)
  for _, member in ipairs(call('ZRANGEBYSCORE', QUEUE, ticket, ticket)) do
    if string.sub(member, 1, 33) == id .. '|' then
      return member
    end
  end
end

-- The same where the client does not know its ticket, with the ticket.
local function find(id)
  local all = call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES')
  for n = 1, #all, 2 do
    if string.sub(all[n], 1, 33) == id .. '|' then
      return all[n], all[n + 1]
    end
  end
end

-- Whether a waiter may have a heartbeat besides its arrival. One that listens has none so soon.
local function has_heartbeat(ticket, channel)
  return channel == '' or micros - ticket > 100000
end

local function is_alive(ticket, alive, heartbeat)
  local last = heartbeat or math.floor(ticket / 1000)
  return last + alive >= now
end

-- Grants the lock to waiters in the order of their arrival, for as long as it admits them, and
-- publishes it; a waiter without a heartbeat in time is dropped. `popped` is the first one, if it has
-- been taken from the queue. `me` needs no message; gives its token.
local function serve(popped, me, ms)
  local mine
  while true do
    local free = not held()
    local first = popped or free and call('ZPOPMIN', QUEUE)
      or call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
    popped = nil
    local member, ticket = first[1], first[2]
    if not member then
      break
    end
    local id = string.sub(member, 1, 32)
    local alive, window, beat, mode, channel, label = parts(member)
    local heartbeat
    if has_heartbeat(ticket, channel) then
      local note = call('HGET', NOTES, 'w:' .. id)
      if note then
        heartbeat, beat, channel = string.match(note, '^(%d+)|(%d+)|(.*)$')
      end
    end
    -- What is no member of ours is no waiter.
    local lives = alive and is_alive(ticket, alive, heartbeat)
    if lives and not free and not admits(mode) then
      break
    end
    if not free then
      call('ZREM', QUEUE, member)
    end
    local token
    if lives then
      local done
      done, token = pcall(grant, id, mode, label, id == me and ms or tonumber(window))
      if not done then
        -- No token can be drawn: the waiter keeps its place.
        call('ZADD', QUEUE, ticket, member)
        error(token)
      end
    end
    if heartbeat then
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
        break
      end
    end
  end
  purge()
  return mine
end

-- Serves when nobody holds the lock any more. Where no waiter can be granted it, it is free all the same.
local function serve_free(popped)
  clear()
  local done, failure = pcall(serve, popped)
  if not done then
    purge()
    error(failure)
  end
end

