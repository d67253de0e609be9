-- Have the ends of jobs told. The key goes away with the last of them.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 now   2 until when   then the ids
-- RETURNS  1
-- BOUND    the jobs given, and those whose time has passed
--#include many
local key, call, members, wait = KEYS[2] .. ':watched', redis.call, {}, tonumber(ARGV[2]) - tonumber(ARGV[1])
call('ZREMRANGEBYSCORE', key, '-inf', '(' .. ARGV[1])
for i = 3, #ARGV do
  members[#members + 1] = ARGV[2]
  members[#members + 1] = ARGV[i]
end
if #members == 0 then return 1 end
for i = 1, #members, CHUNK do
  call('ZADD', key, 'GT', unpack(members, i, math.min(i + CHUNK - 1, #members)))
end
if call('PTTL', key) < wait then call('PEXPIRE', key, math.max(1, wait)) end
return 1
