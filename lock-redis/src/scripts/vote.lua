
-- Votes for a holder as one of several independent nodes.
-- Idempotent by id: a holder gets its vote again, with the same token.
-- TOKENS of a node is "<last token, 16 digits>|<id of the last grant>".
--
-- ARGV: retention of TOKENS (ms), id, "<id>|<label>", mode, ttl (ms), proposed token, the run of the
--       server that may vote, or nothing for any, of a waiter "<claim for ms>|<name of the waiter>",
--       and the time of the server (ms) after which nobody waits for the reply.
-- Gives the token; else what is in the way: rejoining, with the run of the server and the last token of
-- this node; gone; late, with the time of the server; held, with the ms until it expires and the last token.
local id, label, mode, ttl = ARGV[2], string.sub(ARGV[3], 34), ARGV[4], tonumber(ARGV[5])
local proposal, elder, limit = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[9])
local claim, waiter = string.match(ARGV[8], '^(%d+)|(.*)$')
local last, owner = string.match(call('GET', TOKENS) or '', '^(%d+)|(.*)$')
last = tonumber(last) or 0

-- A server that has restarted may have forgotten for whom it voted. Its run shows that, its uptime
-- does not: that follows a clock that steps.
if elder ~= '' then
  local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
  if run ~= elder then
    return {'rejoining', run, last}
  end
end

-- A request that was overtaken by its own release.
if call('HGET', NOTES, 'g:' .. id) then
  return {'gone', 0}
end
if is_holder(id) then
  extend(id, ttl)
  local note = call('HGET', NOTES, 'h:' .. id)
  return note and tonumber(string.match(note, '^(%d+)|')) or last - 31
end
-- Voted for before, and ended since: a request that came twice takes nothing.
if owner == id then
  return {'gone', 0}
end
-- A copy that comes after its limit takes nothing.
if now() > limit then
  return {'late', now()}
end

local function refused(ms)
  require_master(NOTES)
  return {'held', ms, last}
end

-- A waiting writer keeps new readers out.
local until_, claimant = string.match(call('HGET', NOTES, 'claim') or '', '^(%d+)|(.*)$')
if mode == 's' and until_ and tonumber(until_) > now() then
  return refused(tonumber(until_) - now())
end
if admits(mode) then
  if claimant and claimant == waiter then
    call('HDEL', NOTES, 'claim')
  end
  -- The clock of the client is the same for all nodes. One that is wrong takes no tokens into the
  -- future, and none back.
  local time = math.abs(proposal - micros()) <= 100000 and proposal or micros()
  local token = math.max(last + 1, time)
  local top = token + (mode == 'x' and 31 or 0)
  hold(id, mode, label, ttl, token)
  call('SET', TOKENS, string.format('%016.0f|%s', top, id), 'PX', ARGV[1])
  return token
end
if held() == 's' and mode == 'x' and claim then
  call('HSET', NOTES, 'claim', string.format('%.0f|%s', now() + tonumber(claim), waiter))
  keep_notes(tonumber(claim))
end
return refused(free_in())
