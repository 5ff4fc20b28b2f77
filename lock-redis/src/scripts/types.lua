-- Names the types of KEYS. Changes nothing.
local types = {}
for n, key in ipairs(KEYS) do
  types[n] = redis.call('TYPE', key)['ok']
end
return types
