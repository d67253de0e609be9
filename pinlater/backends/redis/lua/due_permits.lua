-- Permits that are to be checked, and when they are next (PermitStore.due_permits). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 limit   4 the next check
-- RETURNS  holder and record (_permits.lua) in turn; nil: no such queue
-- BOUND    the limit, and PAST_AT_ONCE groups
--#include many
--#include past
local base, call, later, answer = KEYS[2], redis.call, {}, {}
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
forget_past(base .. ':permits:groups', base .. ':permits:past', ARGV[2])
local checks = base .. ':permits:checks'
local holders = call('ZRANGEBYSCORE', checks, '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
for i, record in ipairs(read('HMGET', base .. ':permits', holders)) do
  later[2 * i - 1], later[2 * i] = ARGV[4], holders[i]
  answer[2 * i - 1], answer[2 * i] = holders[i], record
end
write('ZREM', checks, holders)
write('ZADD', checks, later)
return answer
