-- Those of the jobs given that are FAILED or CANCELLED back to PENDING.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 attempts, or '' for as many as were allowed   3 run_after   4 now
--          5 version of the homes, or ''   then per job: priority, id
-- RETURNS  how many, -1: the homes have changed; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include config
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
local base = KEYS[2]
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
if homes_changed(KEYS[1], ARGV[5]) then return -1 end
local groups, seen, count = {}, {}, 0
for at = 6, #ARGV, 2 do
  local priority, id = ARGV[at], ARGV[at + 1]
  for state = 3, 5, 2 do
    if not seen[id] and redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then
      local name = state .. ' ' .. priority
      seen[id] = true
      groups[name] = groups[name] or {state = state, priority = priority, ids = {}}
      table.insert(groups[name].ids, id)
    end
  end
end
for _, group in pairs(groups) do
  count = count
    + retry(KEYS[1], ARGV[1], group.priority, group.state, group.ids, ARGV[2], ARGV[3], tonumber(ARGV[4]))
end
return count
