-- The jobs of keys.
-- KEYS     1 ROOT   2 BASE
-- ARGV     number of dedupe keys, their names in BASE:keys, then serialize keys
-- RETURNS  per name its entry or '', then per serialize key the head of its chain or ''
-- BOUND    the keys given
--#include many
local names, keys = {}, {}
for i = 2, #ARGV do
  if i <= 1 + tonumber(ARGV[1]) then names[#names + 1] = ARGV[i] else keys[#keys + 1] = ARGV[i] end
end
local answer = {}
for _, entry in ipairs(read('HMGET', KEYS[2] .. ':keys', names)) do answer[#answer + 1] = entry or '' end
for _, head in ipairs(read('HMGET', KEYS[1] .. ':heads', keys)) do answer[#answer + 1] = head or '' end
return answer
