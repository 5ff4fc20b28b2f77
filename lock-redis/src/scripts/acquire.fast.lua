-- Takes the lock or a place in its queue, and is the heartbeat of both.
-- Idempotent by id: whoever holds the lock already is granted it again, with the same token.
--
-- ARGV: retention of FENCE (ms), id, "<id>|<label>", mode, ttl (ms), and for one who waits
--       "<heartbeat>|<alive for ms>|<lease of a grant, ms>|<channel>".
-- Gives the token, or what is in the way: gone; held and limit with a number; queued.

-- The short way: nobody waits, and this id was not granted before.
local fence = redis.call('GET', KEYS[2])
if ARGV[4] == 'x' and (not fence or #fence == 49 and string.sub(fence, 18) ~= ARGV[2]) then
  if redis.call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[5]) then
    -- Tells the time for half of what TIME costs; Redis 6 has no such command.
    local expiry = redis.pcall('PEXPIRETIME', KEYS[1])
    local ms = type(expiry) == 'number' and expiry - ARGV[5]
    -- Both begin with 16 digits, so that they compare as numbers do. Who forgot the last token needs
    -- all digits of the clock: it may be from the same millisecond.
    if ms and fence and ms .. '000' > fence then
      redis.call('SET', KEYS[2], ms .. '031|' .. ARGV[2], 'PX', ARGV[1])
      return ms * 1000
    end
    local time = redis.call('TIME')
    local last = fence and tonumber(string.sub(fence, 1, 16)) or 0
    local token = math.max(last + 1, time[1] * 1000000 + time[2])
    local value = string.format('%016.0f|%s', token + 31, ARGV[2])
    redis.call('SET', KEYS[2], value, 'PX', ARGV[1])
    return token
  end
end

