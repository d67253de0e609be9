-- Make a queue.
-- KEYS     1 ROOT
-- ARGV     1 queue   2 now   3 store id
-- RETURNS  1 new, 0 there already, nil where the store is not (or no longer) this one
-- BOUND    constant
if redis.call('HGET', KEYS[1], 'store') ~= ARGV[3] then return false end
return redis.call('HSETNX', KEYS[1] .. ':queues', ARGV[1], ARGV[2])
