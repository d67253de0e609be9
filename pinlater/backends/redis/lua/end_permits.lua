-- Take back permits of claims (PermitStore.end_permits). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then per claim: holder, claim descriptor
-- RETURNS  group, and the shards to tell with commas between, in turn; nil: no such queue
-- BOUND    the claims given, and the shards that wait for their groups
--#include many
--#include layout
--#include permits
local base, call, holders, ended, told = KEYS[2], redis.call, {}, {}, {}
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
for at = 2, #ARGV, 2 do holders[#holders + 1] = ARGV[at] end
for i, record in ipairs(read('HMGET', base .. ':permits', holders)) do
  local claim = record and select(2, group_and_claim(record))
  if claim == ARGV[2 * i + 1] then ended[#ended + 1] = holders[i] end
end
for group, count in pairs(take_back(base, ended)) do
  local level, full_at, shards = beside(base, group)
  if #shards > 0 then
    local first = {}
    for i = 1, math.min(count, #shards) do
      first[i] = table.remove(shards, 1)
    end
    told[#told + 1], told[#told + 2] = group, table.concat(first, ',')
    for _, shard in ipairs(first) do shards[#shards + 1] = shard end
    put_beside(base, group, level, full_at, shards)
  end
end
return told
