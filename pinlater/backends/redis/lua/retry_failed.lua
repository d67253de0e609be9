-- FAILED jobs back to PENDING, oldest run_after first.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 priority   3 attempts   4 run_after   5 limit   6 now
-- RETURNS  how many; nil: no such queue
-- BOUND    limit, and BLOCKED jobs that stay: their dedupe key has another live job, or their dead letter runs
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include references
--#include chain
--#include keys
--#include ends
--#include forget
--#include links
--#include letters
--#include trails
--#include retry
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local BLOCKED = 1000
local count, blocked, limit = 0, 0, tonumber(ARGV[5])
while count < limit and blocked < BLOCKED do
  local wanted = limit - count
  local ids = redis.call('ZRANGE', KEYS[2] .. ':s:3:' .. ARGV[2], blocked, blocked + wanted - 1)
  local retried = retry(KEYS[1], ARGV[1], ARGV[2], 3, ids, ARGV[3], ARGV[4], tonumber(ARGV[6]))
  count, blocked = count + retried, blocked + #ids - retried
  if #ids < wanted then break end
end
return count
