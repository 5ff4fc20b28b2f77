
-- Why the id does not hold the lock any more.
--
-- ARGV: retention of FENCE (ms), id.
-- Gives the reason if an administrator broke it, else false.
return call('HGET', NOTES, 'b:' .. ARGV[2])
