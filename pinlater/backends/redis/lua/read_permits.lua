-- The permits of jobs (PermitStore.read_permits).
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then the holders
-- RETURNS  per holder the record (_permits.lua), or nothing; nil: no such queue
-- BOUND    the holders given
--#include many
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local holders = {}
for i = 2, #ARGV do holders[i - 1] = ARGV[i] end
return read('HMGET', KEYS[2] .. ':permits', holders)
