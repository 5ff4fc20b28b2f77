
-- Takes the lock or a place in its queue, and is the heartbeat of both.
-- Idempotent by id: whoever holds the lock already is granted it again, with the same token.
--
-- ARGV: retention of FENCE (ms), id, "<id>|<label>", mode, ttl (ms), and for one who waits
--       "<heartbeat>|<alive for ms>|<lease of a grant, ms>|<1 if it had a place, else 0>|<channel>".
-- Gives the token, or what is in the way: gone; held; limit with a number; queued, with the ms until
-- the lock comes free by time alone (-1: never) and the number of those ahead.
local id, label, mode, ttl = ARGV[2], string.sub(ARGV[3], 34), ARGV[4], tonumber(ARGV[5])
local beat, alive, window, again, channel =
  string.match(ARGV[6], '^(%d+)|(%d+)|(%d+)|(%d)|(.*)$')

-- When the lock can come free by time alone, in ms; -1 if it cannot.
local function next_expiry()
  local as = held()
  if not as then
    return 0
  elseif as == 'x' then
    return call('PTTL', LOCK)
  end
  return tonumber(call('ZRANGE', LOCK, 0, 0, 'WITHSCORES')[2]) - now
end

-- A request that was overtaken by its own release.
if call('HEXISTS', NOTES, 'g:' .. id) == 1 then
  return {'gone', 0}
end
if is_holder(id) then
  extend(id, ttl)
  return token_of(id)
end

local place = call('ZSCORE', QUEUE, id)
-- Granted before, and ended since: a request that came twice takes nothing.
local fence = call('GET', FENCE)
if not place and fence and string.sub(fence, 18, 49) == id then
  return {'gone', 0}
end
-- A heartbeat makes no place: whoever had one and has none was granted the lock, gave up, or was
-- passed over, and comes with another id if it comes again.
if not place and again == '1' then
  return {'gone', 0}
end

local function remember()
  local note = { now + tonumber(alive), window, beat, mode, channel, label }
  call('HSET', NOTES, 'w:' .. id, table.concat(note, '|'))
  call('PEXPIRE', QUEUE, 2 * tonumber(alive))
  keep_notes(2 * tonumber(alive))
  forget_broken()
end

if place and beat then
  remember()
  -- The counter can be lost while somebody waits.
  if not fence or #fence == 49 then
    flag()
  end
end
serve(id, ttl)
if is_holder(id) then
  return token_of(id)
end

local as = held()
if as and string.sub(as, 1, 1) == 'p' and string.sub(mode, 1, 1) == 'p' and as ~= mode then
  if dequeue(id) == 1 then
    serve()
  end
  return {'limit', tonumber(string.sub(as, 2))}
end
if not place then
  if call('ZCARD', QUEUE) == 0 and admits(mode) then
    return grant(id, mode, label, ttl)
  elseif not beat then
    return {'held'}
  end
  local last = call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0
  call('ZADD', QUEUE, last + 1, id)
  remember()
  flag()
end
return {'queued', next_expiry(), call('ZRANK', QUEUE, id) or 0}
