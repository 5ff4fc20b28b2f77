
-- A replica may have old data, and refuses every write. No field has this name, so that a master does nothing.
local written = redis.pcall('HDEL', NOTES, '')
if type(written) == 'table' and string.find(written['err'], 'READONLY', 1, true) then
  return redis.error_reply('READONLY this is a replica')
end

return inspect()
