
local id = ARGV[1]
if is_alone then
  -- A place of the holder itself is that of a request that came twice.
  while popped[1] and string.sub(popped[1], 1, 33) == id .. '|' do
    popped = call('ZPOPMIN', QUEUE)
  end
  serve_free(popped)
  return held() and 2 or 1
end
local released = 0
if is_holder(id) then
  released = 1
  leave(id)
else
  local member = ARGV[2] ~= '' and member_of(id, ARGV[2]) or find(id)
  if member then
    call('ZREM', QUEUE, member)
    call('HDEL', NOTES, 'w:' .. id)
  end
end
serve()
return released
