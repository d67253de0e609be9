-- Set how many claims of a queue may be alive here, where the version is above the one here.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 quota   3 version
-- RETURNS  {quota, version, jobs in progress}; nil: no such queue
-- BOUND    constant
local key, queue = KEYS[1] .. ':shares', ARGV[1]
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local quota, version = 0, 0
local known = redis.call('HGET', key, queue)
if known then
  local quota_text, version_text = string.match(known, '^(%d+) (%d+)$')
  quota, version = tonumber(quota_text), tonumber(version_text)
end
local in_progress = redis.call('ZCARD', KEYS[2] .. ':expiry')
if tonumber(ARGV[3]) > version then
  quota, version = tonumber(ARGV[2]), tonumber(ARGV[3])
  redis.call('HDEL', key, queue)  -- first, since a Redis out of memory refuses to begin with the other
  redis.call('HSET', key, queue, string.format('%.0f %.0f', quota, version))
end
return {quota, version, in_progress}
