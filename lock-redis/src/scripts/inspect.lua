
-- Shows the lock, and changes nothing that anybody could notice.
--
-- Gives false if it is free, else {mode, {value or id, ms left, note} of each holder in a row, TOKENS,
-- labels of those who wait}.
local function inspect()
  local as, value = held()
  if not as then
    return false
  end
  local holders = {}
  if as == 'x' then
    holders = { value, call('PTTL', LOCK), '' }
  else
    local members = call('ZRANGE', LOCK, 0, -2, 'WITHSCORES')
    for n = 1, #members, 2 do
      local note = call('HGET', NOTES, 'h:' .. members[n]) or ''
      table.insert(holders, members[n])
      table.insert(holders, tonumber(members[n + 1]) - now())
      table.insert(holders, note)
    end
  end
  local waiters = {}
  for _, entry in ipairs(call('XRANGE', QUEUE, '-', '+')) do
    local id, alive, _, _, _, _, label = parts(entry[2][2])
    local note = id and call('HGET', NOTES, 'w:' .. id)
    if id and (note and string.match(note, '^%d+') or came(entry[1])) + alive >= now() then
      table.insert(waiters, label)
    end
  end
  return { as, holders, redis.pcall('GET', TOKENS), waiters }
end
