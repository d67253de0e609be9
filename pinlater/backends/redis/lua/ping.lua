-- The identity and the clock. The write does nothing but fail where real writes would fail.
-- KEYS     1 ROOT
-- RETURNS  {shard id or '', store id or '', seconds, microseconds}
-- BOUND    constant
redis.call('HDEL', KEYS[1], '')
local known, time = redis.call('HMGET', KEYS[1], 'shard', 'store'), redis.call('TIME')
return {known[1] or '', known[2] or '', time[1], time[2]}
