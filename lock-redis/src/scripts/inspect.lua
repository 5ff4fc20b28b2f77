
-- Shows the lock, and changes nothing that anybody could notice.
--
-- ARGV: retention of FENCE (ms).
-- Gives false if it is free, else {mode, {value or id, ms left, note} of each holder in a row, FENCE, labels of those who wait}.
local function inspect()
  local as, value = held()
  if not as then
    return false
  end
  local holders = {}
  if as == 'x' then
    holders = { string.gsub(value, '|q$', ''), call('PTTL', LOCK), '' }
  else
    local members = call('ZRANGE', LOCK, 0, -2, 'WITHSCORES')
    for n = 1, #members, 2 do
      local note = call('HGET', NOTES, 'h:' .. members[n]) or ''
      table.insert(holders, members[n])
      table.insert(holders, tonumber(members[n + 1]) - now)
      table.insert(holders, note)
    end
  end
  local waiters = {}
  for _, id in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
    local note = call('HGET', NOTES, 'w:' .. id)
    local alive, label = string.match(note or '', '^(%d+)|%d+|%d+|%w+|[^|]*|(.*)$')
    if alive and tonumber(alive) >= now then
      table.insert(waiters, label)
    end
  end
  return { as, holders, call('GET', FENCE) or '', waiters }
end
