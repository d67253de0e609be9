-- The jobs in line of groups.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the most jobs to count   3 '' or a time: see whether groups are held back then   4 the number of
--          priorities, then these   from there on: groups
-- RETURNS  per group, over all priorities: jobs in line, run_after of the first of them or '', how many of them wait where
--          the group is held back; nil: no such queue
-- BOUND    the groups, for each of the priorities
--#include layout
local base, call, most, behind = KEYS[2], redis.call, tonumber(ARGV[2]), 4 + tonumber(ARGV[4])
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local answer = {}
for at = behind + 1, #ARGV do
  local from, to, jobs, limited, oldest = '[' .. ARGV[at] .. '\0', '(' .. ARGV[at] .. '\1', 0, 0, nil
  for p = 5, behind do
    local key = base .. ':lines:' .. ARGV[p]
    local member = call('ZRANGEBYLEX', key, from, to, 'LIMIT', 0, 1)[1]
    if member then
      local count = math.min(most, call('ZLEXCOUNT', key, from, to))
      local until_ms = ARGV[3] ~= '' and call('ZSCORE', base .. ':held:' .. ARGV[p], ARGV[at])
      if until_ms and tonumber(until_ms) > tonumber(ARGV[3]) then limited = limited + count end
      jobs = jobs + count
      oldest = math.min(oldest or math.huge, (unpack_record('>I8', member, #member - 15)))
    end
  end
  answer[#answer + 1] = jobs
  answer[#answer + 1] = oldest and string.format('%.0f', oldest) or ''
  answer[#answer + 1] = limited
end
return answer
