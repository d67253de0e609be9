-- Windows by when they pass, and then by name.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 the time and 3 the name to go on behind, or '' and ''
-- RETURNS  {name, until, entry or '', ...}; an entry that is no such window any more is left to the caller
-- BOUND    limit, and what has the same time as the place to go on from
local root, call, answer = KEYS[1], redis.call, {}
local index, limit, from = root .. ':windows', tonumber(ARGV[1]), 0
if ARGV[2] ~= '' then
  from = call('ZCOUNT', index, '-inf', '(' .. ARGV[2])
  local bottom, top = from, from + call('ZCOUNT', index, ARGV[2], ARGV[2])
  while bottom < top do  -- the first that is behind the name, by bytes
    local middle = math.floor((bottom + top) / 2)
    local name, is_behind = call('ZRANGE', index, middle, middle)[1], false
    for i = 1, #name do
      local own, other = string.byte(name, i), string.byte(ARGV[3], i)
      if own ~= other then
        is_behind = not other or own > other
        break
      end
    end
    if is_behind then top = middle else bottom = middle + 1 end
  end
  from = bottom
end
local found = call('ZRANGE', index, from, from + limit - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  local queue, name = string.match(found[i], '^([^:]+):(.*)$')
  answer[#answer + 1] = found[i]
  answer[#answer + 1] = found[i + 1]
  answer[#answer + 1] = call('HGET', root .. ':q:' .. queue .. ':keys', name) or ''
end
return answer
