
-- Votes for a holder as one of several independent nodes.
-- Idempotent by id: who has the vote is given it again, with the same token.
--
-- ARGV: retention of FENCE (ms), id, "<id>|<label>", mode, ttl (ms), proposed token, rejoin delay
--       (ms), and for one who waits "<claim for ms>|<name of the waiter>".
-- Gives the token, or {"blind", token} if the server does not tell for how long it is up; else
-- what is in the way: young, with the ms that are left; gone; held, with the ms until it expires.
local id, label, mode, ttl = ARGV[2], string.sub(ARGV[3], 34), ARGV[4], tonumber(ARGV[5])
local proposal, delay = tonumber(ARGV[6]), tonumber(ARGV[7])
local patience, waiter = string.match(ARGV[8], '^(%d+)|(.*)$')

-- A server that has restarted may have forgotten for whom it voted.
local blind = false
if delay > 0 then
  local info = redis.pcall('INFO', 'server')
  local uptime = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)')
  -- Both ends of the uptime are cut to whole seconds.
  local left = uptime and delay + 1000 - tonumber(uptime) * 1000
  if not uptime then
    blind = true
  elseif left > 0 then
    return {'young', left}
  end
end

local function voted(token)
  return blind and {'blind', token} or token
end

-- A request that was overtaken by its own release.
if call('HEXISTS', NOTES, 'g:' .. id) == 1 then
  return {'gone', 0}
end
if is_holder(id) then
  extend(id, ttl)
  return voted(token_of(id))
end
-- Voted for before, and ended since: a request that came twice takes nothing.
if string.sub(call('GET', FENCE) or '', 18, 49) == id then
  return {'gone', 0}
end

-- A writer that waits keeps new readers out.
local until_, claimant = string.match(call('HGET', NOTES, 'claim') or '', '^(%d+)|(.*)$')
if mode == 's' and until_ and tonumber(until_) > now then
  return {'held', tonumber(until_) - now}
end
if admits(mode) then
  if claimant and claimant == waiter then
    call('HDEL', NOTES, 'claim')
  end
  -- The clock of the client is the same for all nodes. One that is wrong takes no tokens into the
  -- future, and none back.
  local time = math.abs(proposal - micros) <= 100000 and proposal or micros
  return voted(grant(id, mode, label, ttl, time))
end
local as = held()
if as == 's' and mode == 'x' and patience then
  call('HSET', NOTES, 'claim', string.format('%.0f|%s', now + tonumber(patience), waiter))
  keep_notes(tonumber(patience))
end
if as == 'x' then
  return {'held', call('PTTL', LOCK)}
end
return {'held', tonumber(call('ZRANGE', LOCK, 0, 0, 'WITHSCORES')[2]) - now}
