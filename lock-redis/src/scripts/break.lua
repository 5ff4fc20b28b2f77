
-- Takes the lock from all of its holders, remembers for them why and tells them, and grants it to
-- who is next.
--
-- ARGV: reason, and "acks" if replicas must have acknowledged what is found.
-- Gives what inspect gives.
-- Holders of clients that do not listen for it learn it at their next renewal.
local found = inspect()
if found then
  local longest, ids = 1, {}
  for n = 1, #found[2], 3 do
    local id, left = string.sub(found[2][n], 1, 32), found[2][n + 1]
    -- A server without memory denies HSET as the first write of a script, and not this.
    call('HDEL', NOTES, 'h:', 'h:' .. id)
    call('HSET', NOTES, 'b:' .. id, string.format('%.0f|%s', now(), ARGV[1]))
    longest = math.max(longest, left)
    ids[id .. '|'] = true
    -- The id is worth nothing any more. A message that cannot be sent is a lost one.
    redis.pcall('PUBLISH', 'polylock:broken', 'broken|' .. id)
  end
  local until_ = now() + longest + 60000
  if until_ > tonumber(call('HGET', NOTES, 'b:') or 0) then
    call('HSET', NOTES, 'b:', string.format('%.0f', until_))
  end
  keep_notes(longest + 60000)
  forget_places(ids, '-')
  serve_free()
elseif ARGV[2] == 'acks' then
  -- The replicas that acknowledge a write of this call have those of earlier calls as well. From Redis 7.2 on,
  -- WAIT counts every replica on a connection that has written nothing. LOCK is free, and stays so.
  -- A server without memory denies SET as the first write of a script, and not DEL.
  call('DEL', LOCK)
  call('SET', LOCK, '', 'PX', 1)
  call('DEL', LOCK)
else
  require_master(NOTES)
end
return found
