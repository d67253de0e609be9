-- The jobs in line of groups.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the most jobs to count   3 the number of priorities, then these   from there on: groups
-- RETURNS  per group, over all priorities: jobs in line, run_after of the first of them or ''; nil: no such queue
-- BOUND    the groups, for each of the priorities
--#include layout
local base, call, most, behind = KEYS[2], redis.call, tonumber(ARGV[2]), 3 + tonumber(ARGV[3])
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local answer = {}
for at = behind + 1, #ARGV do
  local from, to, jobs, oldest = '[' .. ARGV[at] .. '\0', '(' .. ARGV[at] .. '\1', 0, nil
  for p = 4, behind do
    local key = base .. ':lines:' .. ARGV[p]
    local member = call('ZRANGEBYLEX', key, from, to, 'LIMIT', 0, 1)[1]
    if member then
      jobs = jobs + math.min(most, call('ZLEXCOUNT', key, from, to))
      oldest = math.min(oldest or math.huge, (unpack_record('>I8', member, #member - 15)))
    end
  end
  answer[#answer + 1] = jobs
  answer[#answer + 1] = oldest and string.format('%.0f', oldest) or ''
end
return answer
