-- Why the id does not hold the lock any more.
--
-- KEYS: LOCK, TOKENS, QUEUE, NOTES. ARGV: id.
-- Gives the reason if an administrator broke it, else false.
return redis.call('HGET', KEYS[4], 'b:' .. ARGV[1])
