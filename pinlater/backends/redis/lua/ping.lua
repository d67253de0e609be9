-- The identity, the clock, and whether there is room. The last write does nothing but fail where all writes would fail;
-- the one before changes nothing either, and fails where a Redis out of memory refuses what adds.
-- KEYS     1 ROOT
-- RETURNS  {shard id and version or '', store id or '', seconds, microseconds, 1 where memory is used up, else 0, last id or '0'}
-- BOUND    constant
local known, time = redis.call('HMGET', KEYS[1], 'shard', 'store'), redis.call('TIME')
local full = 0
if known[1] then
  local tried = redis.pcall('HSETNX', KEYS[1], 'shard', known[1])
  if type(tried) == 'table' and string.find(tried.err, 'OOM', 1, true) then full = 1 end
end
redis.call('HDEL', KEYS[1], '')
return {known[1] or '', known[2] or '', time[1], time[2], full, redis.call('GET', KEYS[1] .. ':last') or '0'}
