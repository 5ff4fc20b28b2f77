-- Acquires the lock or joins its queue, and is the heartbeat of both. Idempotent by id, but for a first
-- request that the network repeats: its second place in the queue is dropped without heartbeats.
--
-- ARGV: "<id>|<label>", mode, ttl (ms), and for a waiter: its ticket, "" if it has none, "?" if an
--       earlier request may have joined the queue; alive for (ms), lease of a grant (ms), heartbeat,
--       channel.
-- Gives the token; else held; gone, if the ticket is not in the queue; limit with a number; queued,
-- with the ms until the lock comes free by time alone (-1: unknown), the number of those ahead, and
-- the ticket.
local id, mode, ttl = string.sub(ARGV[1], 1, 32), ARGV[2], tonumber(ARGV[3])
local ticket, alive, window, beat, channel = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local function join()
  ticket = micros
  local label = string.sub(ARGV[1], 34)
  local member = table.concat({ id, alive, window, beat, mode, channel, label }, '|')
  call('ZADD', QUEUE, string.format('%.0f', ticket), member)
end

local function queued(ahead)
  local next = -1
  if ahead == 0 then
    local as = held()
    if as == 'x' then
      next = call('PTTL', LOCK)
    elseif as then
      next = tonumber(call('ZRANGE', LOCK, 0, 0, 'WITHSCORES')[2]) - now
    end
  end
  return { 'queued', next, ahead, string.format('%.0f', ticket) }
end

-- The common case: others hold the lock exclusively and wait already.
local ahead = call('ZCARD', QUEUE)
if ahead > 0 and ticket == '' and mode == 'x' then
  join()
  return queued(ahead)
end

local member
if ticket == '?' then
  member, ticket = find(id)
elseif ticket and ticket ~= '' then
  member = member_of(id, ticket)
end
if is_holder(id) then
  if member then
    call('ZREM', QUEUE, member)
    call('HDEL', NOTES, 'w:' .. id)
  end
  extend(id, ttl)
  return draw(1)
end
if ticket and ticket ~= '' and not member then
  -- Granted and ended since, or dropped: it comes with another id if it comes again.
  return { 'gone', 0 }
end
if member and has_heartbeat(ticket, select(5, parts(member))) then
  -- A server without memory denies HSET as the first write of a script, and not this.
  call('PEXPIRE', QUEUE, 10 * alive)
  call('HSET', NOTES, 'w:' .. id, string.format('%.0f|%s|%s', now, beat, channel))
  keep_notes(2 * alive)
  forget_broken()
end
if ahead > 0 then
  local token = serve(nil, id, ttl)
  if token then
    return token
  end
  ahead = call('ZCARD', QUEUE)
end

local as = held()
if as and string.sub(as, 1, 1) == 'p' and string.sub(mode, 1, 1) == 'p' and as ~= mode then
  if member then
    call('ZREM', QUEUE, member)
    call('HDEL', NOTES, 'w:' .. id)
    serve()
  end
  return { 'limit', tonumber(string.sub(as, 2)) }
end
if member then
  return queued(call('ZCOUNT', QUEUE, '-inf', string.format('(%.0f', ticket)))
end
if ahead == 0 and admits(mode) then
  return grant(id, mode, string.sub(ARGV[1], 34), ttl)
elseif not alive then
  return { 'held' }
end
join()
-- Those who join later rely on it as well, until their first heartbeat.
if ahead == 0 then
  call('PEXPIRE', QUEUE, 10 * alive)
end
return queued(ahead)
