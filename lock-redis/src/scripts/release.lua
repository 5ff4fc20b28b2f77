
local id = ARGV[2]
local released = 0
local as = held()
if as and is_holder(id) then
  released = 1
  if as == 'x' then
    call('DEL', LOCK)
  else
    call('ZREM', LOCK, id)
    call('HDEL', NOTES, 'h:' .. id)
    settle()
  end
elseif dequeue(id) == 0 then
  -- The acquisition may still be on its way, on another connection.
  call('HSET', NOTES, 'g:' .. id, 1)
  keep_notes(60000)
  flag()
end
serve()
return released
