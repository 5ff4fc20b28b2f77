
-- Gives back the lock, or the place in its queue, if this id has it, and grants it to who is next.
--
-- ARGV: retention of FENCE (ms), id, and 1 if a copy of its acquisition may still be under way.
-- Gives 1 if the id held the lock, else 0.
local id = ARGV[2]
local released, had_place = 0, false
local as = held()
if as and is_holder(id) then
  released = 1
  if as == 'x' then
    clear()
  else
    leave(id)
  end
else
  had_place = dequeue(id) == 1
end
if ARGV[3] == '1' or released == 0 and not had_place then
  -- The acquisition may still be on its way, on another connection.
  call('HSET', NOTES, 'g:' .. id, now)
  keep_notes(60000)
  forget_broken()
  flag()
  -- A lock in steady use never loses its notes by time alone; "g:" has the time of the last look.
  if now - tonumber(call('HGET', NOTES, 'g:') or 0) > 60000 then
    for _, field in ipairs(call('HKEYS', NOTES)) do
      if string.sub(field, 1, 2) == 'g:' and now - tonumber(call('HGET', NOTES, field)) > 60000 then
        call('HDEL', NOTES, field)
      end
    end
    call('HSET', NOTES, 'g:', now)
  end
end
serve()
return released
