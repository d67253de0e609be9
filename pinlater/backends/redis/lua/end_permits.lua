-- Take back permits of claims (PermitStore.end_permits). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then per claim: holder, claim descriptor or '': whichever claim it is
-- RETURNS  group, how many of its permits, the shards that wait with commas between; of groups for which some wait;
--          nil: no such queue
-- BOUND    the claims given, and the shards that wait for their groups
--#include many
--#include layout
--#include permits
local base, call, holders, ended, groups, freed = KEYS[2], redis.call, {}, {}, {}, {}
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
for at = 2, #ARGV, 2 do holders[#holders + 1] = ARGV[at] end
for i, record in ipairs(read('HMGET', base .. ':permits', holders)) do
  local group, claim, named = nil, nil, ARGV[2 * i + 1]
  if record then group, claim = group_and_claim(record) end
  if claim and (claim == named or named == '') then ended[#ended + 1], groups[#groups + 1] = holders[i], group end
end
for group, count in pairs(take_back(base, ended, groups)) do
  local level, full_at, shards = beside(base, group)
  if #shards > 0 then
    freed[#freed + 1], freed[#freed + 2], freed[#freed + 3] = group, count, table.concat(shards, ',')
    for _ = 1, math.min(count, #shards) do
      local first = table.remove(shards, 1)
      shards[#shards + 1] = first
    end
    put_beside(base, group, level, full_at, shards)
  end
end
return freed
