-- The entries of a namespace that have not expired.
-- KEYS     1 ROOT
-- ARGV     1 namespace   2 now
-- RETURNS  {name, expires at, eight bytes of version and the body, ...}
-- BOUND    the entries that are kept of a namespace
--#include many
local found = redis.call('ZRANGEBYSCORE', KEYS[1] .. ':until:' .. ARGV[1], '(' .. ARGV[2], '+inf', 'WITHSCORES')
local names, answer = {}, {}
for i = 1, #found, 2 do names[#names + 1] = found[i] end
for i, entry in ipairs(read('HMGET', KEYS[1] .. ':notes:' .. ARGV[1], names)) do
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = names[i], found[2 * i], entry
end
return answer
