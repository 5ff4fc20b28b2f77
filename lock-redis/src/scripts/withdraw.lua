
-- Takes a vote back, also one that is still on its way.
--
-- ARGV: id.
-- Gives 1 if the id held the lock, else 0.
local id = ARGV[1]
if is_holder(id) then
  if held() == 'x' then
    clear()
    purge()
  else
    leave(id)
  end
  return 1
end
call('HSET', NOTES, 'g:' .. id, now())
keep_notes(60000)
forget_broken()
-- NOTES of a lock in steady use never end by time alone; "g:" has the time of the last look.
if now() - tonumber(call('HGET', NOTES, 'g:') or 0) > 60000 then
  forget('g:', 60000)
  call('HSET', NOTES, 'g:', now())
end
return 0
