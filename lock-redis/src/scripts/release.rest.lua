
local id = ARGV[1]
if is_alone then
  clear()
  local done, failure = pcall(serve, popped)
  if not done then
    -- The next one cannot be granted it, and the lock is free all the same.
    purge()
    error(failure)
  end
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
