
local id = ARGV[1]
if is_alone then
  serve_free(id, first)
  return held() and 2 or 1
end
local released = 0
if is_holder(id) then
  released = 1
  leave(id)
else
  local ticket = ARGV[2] ~= '' and ticket_of(id, ARGV[2], ARGV[2]) or ticket_of(id, '-', '+')
  if ticket then
    call('XDEL', QUEUE, ticket)
    call('HDEL', NOTES, 'w:' .. id)
  else
    require_master(NOTES)
  end
end
serve(id)
return released
