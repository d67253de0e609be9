-- Store jobs. The first write is refused by a Redis out of memory, and then nothing is stored.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the lowest id that may be given: now in microseconds   3 what to publish (news.py)
--          4 number of priorities, then for each: priority, number of its jobs
--          then per job, in the order of those priorities: run_after, value, place in the order of ids (from 0)
--          (with one priority the place is left out: it is the order given)
-- RETURNS  the first id, the others following it in order of place; nil: no such queue
-- BOUND    the jobs given
--#include many
local root, base = KEYS[1], KEYS[2]
if redis.call('HEXISTS', root .. ':queues', ARGV[1]) == 0 then return false end
local kinds = tonumber(ARGV[4])
local first = math.max((tonumber(redis.call('GET', root .. ':last')) or 0) + 1, tonumber(ARGV[2]))
local at, total, pack = 5 + 2 * kinds, 0, struct.pack
for kind = 1, kinds do total = total + tonumber(ARGV[4 + 2 * kind]) end
redis.call('SET', root .. ':last', string.format('%.0f', first + total - 1))
local jobs, n = {}, 0
for kind = 1, kinds do
  local members, m = {}, 0
  for i = 0, tonumber(ARGV[4 + 2 * kind]) - 1 do
    local place = i
    if kinds > 1 then place = tonumber(ARGV[at + 2]) end
    local id = pack('>I8', first + place)
    members[m + 1], members[m + 2] = ARGV[at], id
    jobs[n + 1], jobs[n + 2] = id, ARGV[at + 1]
    m, n = m + 2, n + 2
    at = at + (kinds > 1 and 3 or 2)
  end
  write('ZADD', base .. ':s:0:' .. ARGV[3 + 2 * kind], members)
end
write('HSET', base .. ':jobs', jobs)
redis.pcall('PUBLISH', base .. ':news', ARGV[3])  -- nobody need be allowed to (see _news.lua)
return string.format('%.0f', first)
