-- Acquires the lock or joins its queue, and is the heartbeat of both. Idempotent by id, but for a first
-- request that the network repeats: its second place in the queue is dropped without heartbeats.
--
-- ARGV: ttl (ms); of a waiter its ticket, "" if it has none, "?" if an earlier request may have joined
--       the queue; the value of its entry, alive for 0 ms if it does not wait.
-- Gives the token; else held; gone, if the ticket is not in the queue; queued, with the ms until the
-- lock comes free by time alone for the first waiter (-1: unknown), and the ticket.
local ttl, from, to = tonumber(ARGV[1]), ARGV[2], ARGV[2]
local id, alive, _, beat, mode, channel, label = parts(ARGV[3])
if from == '?' then
  from, to = '-', '+'
end
local ticket = from ~= '' and ticket_of(id, from, to)

local function queued(first)
  return { 'queued', first == ticket and free_in() or -1, ticket }
end

if is_holder(id) then
  if ticket then
    call('XDEL', QUEUE, ticket)
    call('HDEL', NOTES, 'w:' .. id)
  end
  extend(id, ttl)
  local as, value = held()
  -- The token of a grant is stored, except for a lock that was taken by plain commands.
  local stored = as == 'x' and string.match(value, '^%x+|[^|]*|(.*)$')
    or as ~= 'x' and call('HGET', NOTES, 'h:' .. id)
  return stored and tonumber(string.match(stored, '^%d+')) or draw(1)
end
if to ~= '' and to ~= '+' and not ticket then
  -- Granted and ended since, or dropped: it comes with another id if it comes again.
  require_master(NOTES)
  return { 'gone', 0 }
end
local begins = false
if ticket and has_heartbeat(ticket, channel, now()) then
  -- A server without memory denies HSET as the first write of a script, and not this.
  call('PEXPIRE', QUEUE, 10 * alive)
  begins = call('HSET', NOTES, 'w:' .. id, string.format('%.0f|%s|%s', now(), beat, channel)) == 1
  keep_notes(2 * alive)
  forget_broken()
elseif ticket then
  require_master(NOTES)
end
local first = first_waiter()
if first then
  local token = serve(nil, first, id, ttl)
  if token then
    return token
  end
  first = first_waiter()
end
if ticket then
  if first and first[1] == ticket then
    bury(ticket)
    if begins then
      -- A QUEUE that ends by time leaves the heartbeats of its last waiters, and NOTES of a lock with several
      -- holders in steady use never end by time alone.
      forget('w:', 10 * alive)
    end
  end
  return queued(first and first[1])
end
if not first and admits(mode) then
  local token = draw(1)
  hold(id, mode, label, ttl, token)
  return token
elseif alive == '0' then
  require_master(NOTES)
  return { 'held', 0 }
end
ticket = call('XADD', QUEUE, '*', 'w', ARGV[3])
-- Waiters that join by XADD rely on this expiry until their first heartbeat.
call('PEXPIRE', QUEUE, 10 * alive)
return queued(first and first[1] or ticket)
