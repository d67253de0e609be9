-- Remove jobs of one state and priority.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 state   3 priority   4 limit
-- RETURNS  how many; nil: no such queue
-- BOUND    limit
--#include many
--#include forget
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local key = KEYS[2] .. ':s:' .. ARGV[2] .. ':' .. ARGV[3]
local ids = redis.call('ZRANGE', key, 0, tonumber(ARGV[4]) - 1)
if #ids == 0 then return 0 end
redis.call('ZREMRANGEBYRANK', key, 0, #ids - 1)
forget(KEYS[2], tonumber(ARGV[2]), ids)
return #ids
