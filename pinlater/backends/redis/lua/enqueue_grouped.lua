-- Store jobs of one priority and one time that have a group, and nothing else of what few jobs have. The first write is
-- refused by a Redis out of memory, and then nothing is stored.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest id that may be given: now in microseconds   4 what to publish (pubsub.py), or ''
--          5 priority   6 run_after   7 number of references to bodies   8 number of groups, then for each: its name, and
--          what BASE:extra gets of its jobs   then the groups of the jobs by number, from 0, two bytes each   then values
-- RETURNS  the first id, the others following it in order; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include references
--#include lines
local root, base, call = KEYS[1], KEYS[2], redis.call
if call('HEXISTS', root .. ':queues', ARGV[1]) == 0 then return false end
local priority, run_after, which_at = ARGV[5], ARGV[6], 9 + 2 * tonumber(ARGV[8])
local which, count = ARGV[which_at], #ARGV - which_at
local first = math.max((tonumber(call('GET', root .. ':last')) or 0) + 1, tonumber(ARGV[3]))
call('SET', root .. ':last', string.format('%.0f', first + count - 1))
local lines = lines_of(base)
lines.mark(root, ARGV[1])
local jobs, extras, members, ids, groups, times = {}, {}, {}, {}, {}, {}
for i = 1, count do
  local a, b, id = 2 * i - 1, 2 * i, pack($ID, first + i - 1)
  local high, low = byte(which, a, b)
  local group_at = 9 + 2 * (256 * high + low)
  jobs[a], jobs[b] = id, ARGV[which_at + i]
  extras[a], extras[b] = id, ARGV[group_at + 1]
  members[a], members[b] = run_after, id
  ids[i], groups[i], times[i] = id, ARGV[group_at], run_after
end
write('HSET', base .. ':jobs', jobs)
if ARGV[7] ~= '0' then references(root).hold(ARGV[1], tonumber(ARGV[7])) end
write('HSET', base .. ':extra', extras)
if tonumber(run_after) <= tonumber(ARGV[2]) then
  lines.enter(priority, groups, times, ids)
else
  add(base .. ':s:0:' .. priority, members)
end
-- nobody need be allowed to (see _notify.lua)
if ARGV[4] ~= '' then redis.pcall('PUBLISH', base .. ':news', ARGV[4]) end
return string.format('%.0f', first)
