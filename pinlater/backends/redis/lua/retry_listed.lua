-- Those of the jobs given that are FAILED back to PENDING.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 attempts, or '' for as many as were allowed   3 run_after   4 now   then per job: priority, id
-- RETURNS  how many; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include links
--#include notify
--#include retry
local base = KEYS[2]
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local by_priority, seen, count = {}, {}, 0
for at = 5, #ARGV, 2 do
  local priority, id = ARGV[at], ARGV[at + 1]
  if not seen[id] and redis.call('ZSCORE', base .. ':s:3:' .. priority, id) then
    seen[id], count = true, count + 1
    by_priority[priority] = by_priority[priority] or {}
    table.insert(by_priority[priority], id)
  end
end
for priority, ids in pairs(by_priority) do retry(base, priority, ids, ARGV[2], ARGV[3], tonumber(ARGV[4])) end
return count
