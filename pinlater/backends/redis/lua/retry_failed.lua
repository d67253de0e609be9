-- FAILED jobs back to PENDING, oldest run_after first.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 priority   3 attempts   4 run_after   5 limit   6 now
-- RETURNS  how many; nil: no such queue
-- BOUND    limit
--#include many
--#include layout
--#include links
--#include notify
--#include retry
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local ids = redis.call('ZRANGE', KEYS[2] .. ':s:3:' .. ARGV[2], 0, tonumber(ARGV[5]) - 1)
retry(KEYS[2], ARGV[2], ids, ARGV[3], ARGV[4], tonumber(ARGV[6]))
return #ids
