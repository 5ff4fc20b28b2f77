-- Fails on a replica, and in a cluster that is down and answers reads, which refuse every write: their data may be
-- old, and does not show what is held. No field has this name, also in a hash of another program, so that a master
-- does nothing.
local function require_master(key)
  local written = redis.pcall('HDEL', key, 'polylock:none')
  local why = type(written) == 'table' and written['err'] or ''
  if string.find(why, 'READONLY', 1, true) or string.find(why, 'cluster is down', 1, true) then
    redis.call('HDEL', key, 'polylock:none')
  end
end

