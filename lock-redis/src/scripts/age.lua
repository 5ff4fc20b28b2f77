-- For how long this run of the server is known to be up, by the clocks of clients that watched it.
-- What an earlier run was known for does not count: a value belongs to the run that it names.
--
-- KEYS: the key for this. ARGV: a run, and for how long (ms) the client knows it to be up.
-- Gives {run, ms} of the run that answers.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local of, age = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+)|(%d+)$')
local known = of == run and tonumber(age) or 0
local seen = ARGV[1] == run and tonumber(ARGV[2]) or 0
if seen > known then
  known = seen
  -- A server without memory does not store it; the client sends it again.
  redis.pcall('SET', KEYS[1], string.format('%s|%.0f', run, seen))
end
return {run, known}
