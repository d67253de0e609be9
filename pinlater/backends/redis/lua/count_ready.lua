-- Eligible jobs per priority.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3.. priorities
-- RETURNS  a count per priority; nil: no such queue
-- BOUND    the priorities given, and SWEPT jobs whose time is over
--#include many
--#include layout
--#include sweep
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
if redis.call('EXISTS', KEYS[2] .. ':extra') == 1 then sweep(KEYS[2], ARGV[2], SWEPT) end
local counts = {}
for i = 3, #ARGV do counts[i - 2] = redis.call('ZCOUNT', KEYS[2] .. ':s:0:' .. ARGV[i], '-inf', ARGV[2]) end
return counts
