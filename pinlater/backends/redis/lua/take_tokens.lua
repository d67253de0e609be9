-- Take whole tokens from a queue's bucket, or give some back (_bucket.lua).
-- KEYS     1 ROOT
-- ARGV     1 queue   2 wanted   3 per second   4 capacity   5 now
-- RETURNS  {granted, milliseconds until there is one more}
-- BOUND    constant
--#include bucket
local key, queue = KEYS[1] .. ':buckets', ARGV[1]
local level = redis.call('HGET', key, queue)
local granted, tokens, at, wait = take_tokens(
  level, tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
)
redis.call('HDEL', key, queue)  -- first, since a Redis out of memory refuses to begin with the other
redis.call('HSET', key, queue, level_of(tokens, at))
return {granted, wait}
