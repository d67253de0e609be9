-- The rooms of groups on this shard (PermitStore.put_rooms). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest possible priority (the highest number)   then per group: group, jobs, until
-- RETURNS  the groups that have jobs in line; nil: no such queue
-- BOUND    the groups given, in each of the possible priorities with jobs in line, ENTERED jobs of each; PAST_AT_ONCE rooms
--#include many
--#include layout
--#include notify
--#include lines
--#include past
local base, call, now = KEYS[2], redis.call, tonumber(ARGV[2])
local entry = call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not entry then return false end
if sub(entry, -1) ~= '$GROUPS_MARK' then return {} end
local rooms_key, until_key, is_clearing = base .. ':rooms', base .. ':rooms:until', sub(entry, -2, -2) == '$CLEARING_MARK'
local lines, groups, has_jobs, found, rooms, times = lines_of(base), {}, {}, {}, {}, {}
for at = 4, #ARGV, 3 do groups[#groups + 1] = ARGV[at] end
local before = read('HMGET', rooms_key, groups)
write('HDEL', rooms_key, groups)
write('ZREM', until_key, groups)
forget_past(rooms_key, until_key, ARGV[2])

for priority = 1, tonumber(ARGV[3]) do
  if not is_clearing then lines.enter_due(priority, ARGV[2]) end
  local free, any = {}, call('EXISTS', base .. ':lines:' .. priority) == 1
  for i, group in ipairs(any and groups or {}) do
    if lines.has_jobs(priority, group) then
      has_jobs[i] = true
      if ARGV[3 * i + 2] ~= '0' and not lines.is_group_paused(group, now) then free[#free + 1] = group end
    end
  end
  if #free > 0 then lines.free(priority, free) end
end

for i, group in ipairs(groups) do
  local jobs, until_ms = ARGV[3 * i + 2], ARGV[3 * i + 3]
  if has_jobs[i] then found[#found + 1] = group end
  if has_jobs[i] or jobs == '0' then
    local had, had_until = string.match(jobs ~= '0' and before[i] or '', '^(%d+) (%d+)$')
    if had and tonumber(had_until) > now then jobs = string.format('%.0f', jobs + had) end
    rooms[#rooms + 1], rooms[#rooms + 2] = group, jobs .. ' ' .. until_ms
    times[#times + 1], times[#times + 2] = until_ms, group
  end
end
write('HSET', rooms_key, rooms)
write('ZADD', until_key, times)
local ready = {}
for i in pairs(has_jobs) do
  for _ = 1, math.min(tonumber(ARGV[3 * i + 2]), $ENTERED) do ready[#ready + 1] = now end
end
notify(base, now, ready)
return found
