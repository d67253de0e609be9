-- Eligible jobs of a queue whose jobs age, by level.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the levels (_aging.lua)
-- RETURNS  level by level, per priority how many jobs are at that level or a higher one; and where the queue has groups,
--          per priority, the sum of the weights of those in line; nil: no such queue
-- BOUND    levels and priorities, and SWEPT jobs whose time is over
--#include many
--#include layout
--#include lines
--#include sweep
--#include aging
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local base = KEYS[2]
if redis.call('EXISTS', base .. ':extra') == 1 then sweep(base, ARGV[2], SWEPT) end
local aging = aging_of(base, ARGV[3], ARGV[2])
local lines, answer, most = string.sub(queue_entry, -1) == '$GROUPS_MARK' and lines_of(base), {}, {}

local function ready(priority, reach)
  local count = redis.call('ZCOUNT', base .. ':s:0:' .. priority, '-inf', reach)
  return lines and count + redis.call('ZCOUNT', base .. ':s:8:' .. priority, '-inf', reach) or count
end

-- Whoever is asked to claim is to find so many.
for _, priority in ipairs(lines and aging.priorities or {}) do
  most[priority] = math.max(0, ready(priority, ARGV[2]) - lines.held_jobs(priority, ARGV[2]))
end
for level = 1, aging.last do
  for _, priority in ipairs(aging.priorities) do
    answer[#answer + 1] = math.min(most[priority] or math.huge, ready(priority, aging.reach(level, priority)))
  end
end
for _, priority in ipairs(lines and aging.priorities or {}) do answer[#answer + 1] = lines.weights(priority) end
return answer
