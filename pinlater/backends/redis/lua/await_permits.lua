-- A shard waits for permits of groups from now on, or no more (PermitStore.await_permits). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 shard   3 until when it waits at least   then per group: group, the most permits; 0: it waits no more
-- RETURNS  per group the permits that are free; nil: no such queue
-- BOUND    the groups given, and the shards that wait for them
--#include many
--#include layout
--#include permits
local base, call, answer = KEYS[2], redis.call, {}
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
for at = 4, #ARGV, 2 do
  local group, most = ARGV[at], tonumber(ARGV[at + 1])
  local level, full_at, shards = beside(base, group)
  local place
  for i, shard in ipairs(shards) do
    if shard == ARGV[2] then place = i end
  end
  if most > 0 then
    if not place then shards[#shards + 1] = ARGV[2] end
    put_beside(base, group, level, full_at, shards, ARGV[3])
  elseif place then
    table.remove(shards, place)
    put_beside(base, group, level, full_at, shards)
  end
  answer[#answer + 1] = math.max(0, most - count_of(base, group))
end
return answer
