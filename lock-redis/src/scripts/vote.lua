
-- Votes for a holder as one of several independent nodes.
-- Idempotent by id: who has the vote is given it again, with the same token.
--
-- ARGV: retention of TOKENS (ms), id, "<id>|<label>", mode, ttl (ms), proposed token, the run of the
--       server that may vote, or nothing for any, for one who waits "<claim for ms>|<name of the
--       waiter>", and the time of the server (ms) after which nobody waits for the answer any more,
--       if that is known.
-- Gives the token; else what is in the way: young, with the run of the server; gone; late, with the
-- time of the server; held, with the ms until it expires.
local id, label, mode, ttl = ARGV[2], string.sub(ARGV[3], 34), ARGV[4], tonumber(ARGV[5])
local proposal, elder = tonumber(ARGV[6]), ARGV[7]
local patience, waiter = string.match(ARGV[8], '^(%d+)|(.*)$')

-- A server that has restarted may have forgotten for whom it voted. Which run it is shows that,
-- and its uptime does not: that follows a clock that steps.
if elder ~= '' then
  local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
  if run ~= elder then
    return {'young', run}
  end
end

-- A request that was overtaken by its own release.
if call('HGET', NOTES, 'g:' .. id) then
  return {'gone', 0}
end
if is_holder(id) then
  extend(id, ttl)
  return token_of(id)
end
-- Voted for before, and ended since: a request that came twice takes nothing.
if string.sub(call('GET', TOKENS) or '', 18, 49) == id then
  return {'gone', 0}
end
-- A copy that comes after its limit takes nothing.
local limit = tonumber(ARGV[9])
if limit and now > limit then
  return {'late', now}
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
  return grant(id, mode, label, ttl, math.max(last_token() + 1, time))
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
