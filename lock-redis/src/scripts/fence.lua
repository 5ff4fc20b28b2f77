-- TOKENS of a node of a quorum: "<last token, 16 digits>|<id of the last grant>".

local function grant(id, mode, label, ms, token)
  local value = string.format('%016.0f|%s', token + (mode == 'x' and 31 or 0), id)
  hold(id, mode, label, ms, token)
  call('SET', TOKENS, value, 'PX', ARGV[1])
  return token
end

local function last_token()
  local fence = call('GET', TOKENS)
  return fence and tonumber(string.sub(fence, 1, 16)) or 0
end

-- The first token of a holder.
local function token_of(id)
  local note = call('HGET', NOTES, 'h:' .. id)
  if note then
    return tonumber(string.match(note, '^(%d+)|'))
  end
  return last_token() - 31
end

