-- The numbers of permits that groups have (PermitStore.count_permits).
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then the groups
-- RETURNS  per group the number, or nothing; nil: no such queue
-- BOUND    the groups given
--#include many
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local groups = {}
for i = 2, #ARGV do groups[i - 1] = ARGV[i] end
return read('HMGET', KEYS[2] .. ':permits:counts', groups)
