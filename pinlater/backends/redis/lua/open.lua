-- Read the identity; write it where there is none yet and an id is given.
-- KEYS     1 ROOT
-- ARGV     1 shard id, or '' for what the record says   2 a random store id
-- RETURNS  {shard id, store id}, or {'', ''} where there is none and none is given
-- BOUND    constant
local known = redis.call('HMGET', KEYS[1], 'shard', 'store')
if known[1] and known[2] then return known end
if ARGV[1] == '' then return {'', ''} end
redis.call('HSET', KEYS[1], 'shard', ARGV[1], 'store', ARGV[2])
return {ARGV[1], ARGV[2]}
