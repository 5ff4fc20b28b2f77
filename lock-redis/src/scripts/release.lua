
local id = ARGV[2]
if released == 0 and type(value) == 'table' then
  held()
  released = call('ZREM', LOCK, id)
  if released == 1 then
    call('HDEL', NOTES, 'h:' .. id)
    settle()
  end
end
if released == 0 and dequeue(id) == 0 then
  -- The acquisition may still be on its way, on another connection.
  call('HSET', NOTES, 'g:' .. id, 1)
  keep_notes(60000)
  flag()
end
serve()
return released
