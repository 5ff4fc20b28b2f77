
-- Deletes the places that repeated requests of holders have taken in the queue, from a ticket on. A lock that
-- comes free would be granted to such a place, and its former holder would hold it again. `ids` has "<id>|" of
-- each holder. A queue or notes of another type have no places.
local function forget_places(ids, from)
  for _, entry in ipairs(redis.pcall('XRANGE', QUEUE, from, '+')) do
    local waiter = string.sub(entry[2][2], 1, 33)
    if ids[waiter] then
      call('XDEL', QUEUE, entry[1])
      redis.pcall('HDEL', NOTES, 'w:' .. string.sub(waiter, 1, 32))
    end
  end
end
