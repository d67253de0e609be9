-- FAILED jobs back to PENDING, oldest run_after first.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 priority   3 attempts   4 run_after   5 limit   6 now
-- RETURNS  how many; nil: no such queue
-- BOUND    limit
--#include many
--#include records
local base = KEYS[2]
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local failed, now = base .. ':s:3:' .. ARGV[2], tonumber(ARGV[6])
local ids = redis.call('ZRANGE', failed, 0, tonumber(ARGV[5]) - 1)
if #ids == 0 then return 0 end
local changed, new, pending = read('HMGET', base .. ':changed', ids), {}, {}
for i, id in ipairs(ids) do
  local _, _, allowed = unpack_record(CHANGED, changed[i])
  new[2 * i - 1] = id
  new[2 * i] = pack(CHANGED, now, tonumber(ARGV[3]), allowed, 0) .. sub(changed[i], CHANGED_STATUS_AT)
  pending[2 * i - 1], pending[2 * i] = ARGV[4], id
end
redis.call('ZREMRANGEBYRANK', failed, 0, #ids - 1)
write('ZREM', base .. ':ended:3', ids)
write('HDEL', base .. ':claims', ids)
write('HSET', base .. ':changed', new)
write('ZADD', base .. ':s:0:' .. ARGV[2], pending)
return #ids
