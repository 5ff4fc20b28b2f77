
local id = ARGV[1]
if is_alone then
  clear()
  serve(popped)
  return held() and 2 or 1
end
local released = 0
if is_holder(id) then
  released = 1
  leave(id)
else
  local member = find(id)
  if member then
    call('ZREM', QUEUE, member)
    call('HDEL', NOTES, 'w:' .. id)
  end
end
serve()
return released
