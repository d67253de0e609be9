-- Store jobs. The first write is refused by a Redis out of memory, and then nothing is stored.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the lowest id that may be given: now in microseconds   3 what to publish (pubsub.py), or ''
--          4 number of priorities, then for each: priority, number of its jobs, the run_after of all or ''
--          then for each of those priorities: values, run_afters (none where there is one for all), places in the order
--          of ids, from 0 (none where there is one priority: it is the order given)
--          then the number of references to bodies, where there are any
-- RETURNS  the first id, the others following it in order of place; nil: no such queue
-- BOUND    the jobs given
--#include many
local root, base = KEYS[1], KEYS[2]
if redis.call('HEXISTS', root .. ':queues', ARGV[1]) == 0 then return false end
local kinds = tonumber(ARGV[4])
local first = math.max((tonumber(redis.call('GET', root .. ':last')) or 0) + 1, tonumber(ARGV[2]))
local at, total, pack = 5 + 3 * kinds, 0, struct.pack
for kind = 1, kinds do total = total + tonumber(ARGV[3 + 3 * kind]) end
redis.call('SET', root .. ':last', string.format('%d', first + total - 1))
local jobs, n = {}, 0
for kind = 1, kinds do
  local priority, count, run_after = ARGV[2 + 3 * kind], tonumber(ARGV[3 + 3 * kind]), ARGV[4 + 3 * kind]
  local times = at + count
  local places = run_after == '' and times + count or times
  local members, m = {}, 0
  for i = 0, count - 1 do
    local id = pack($ID, first + (kinds > 1 and ARGV[places + i] or i))
    members[m + 1], members[m + 2] = run_after ~= '' and run_after or ARGV[times + i], id
    jobs[n + 1], jobs[n + 2] = id, ARGV[at + i]
    m, n = m + 2, n + 2
  end
  add(base .. ':s:0:' .. priority, members)
  at = kinds > 1 and places + count or places
end
write('HSET', base .. ':jobs', jobs)
if ARGV[at] then  -- what is taken in here costs no call without references
--#include layout
--#include references
  references(root).hold(ARGV[1], tonumber(ARGV[at]))
end
-- nobody need be allowed to (see _notify.lua)
if ARGV[3] ~= '' then redis.pcall('PUBLISH', base .. ':news', ARGV[3]) end
return string.format('%d', first)
