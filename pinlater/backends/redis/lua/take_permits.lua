-- Permits and tokens for claims (PermitStore.take_permits). The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 when permits are checked   4 number of claims, their holders, their records (_permits.lua)
--          then per group: group, number of claims, the most permits or '', tokens per second or '', capacity or ''
-- RETURNS  per group in turn: granted, milliseconds until the rate allows one more; nil: no such queue
-- BOUND    the claims given
--#include many
--#include layout
--#include bucket
--#include permits
local base, call, now, count = KEYS[2], redis.call, tonumber(ARGV[2]), tonumber(ARGV[4])
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local holders, checks, answer, place = {}, {}, {}, 0
for i = 1, count do holders[i] = ARGV[4 + i] end
take_back(base, holders)

local function hand_out(group, granted)
  local new = 0
  for i = place + 1, place + granted do
    new = new + call('HSET', base .. ':permits', holders[i], ARGV[4 + count + i])
    checks[#checks + 1], checks[#checks + 2] = ARGV[3], holders[i]
  end
  if new > 0 then call('HINCRBY', base .. ':permits:counts', group, new) end
end

for at = 5 + 2 * count, #ARGV, 5 do
  local group, wanted, retry_after = ARGV[at], tonumber(ARGV[at + 1]), 0
  local concurrency, per_second, capacity = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local granted = concurrency and math.max(0, math.min(wanted, concurrency - count_of(base, group))) or wanted
  if per_second and granted > 0 then
    local allowed, level, _, shards = granted, beside(base, group)
    local tokens, filled_at, wait
    granted, tokens, filled_at, wait = take_tokens(level, allowed, per_second, capacity, now)
    local full_at = string.format('%.0f', filled_at + (capacity - tokens) * 1000 / per_second)
    put_beside(base, group, level_of(tokens, filled_at), full_at, shards)
    if granted < allowed then retry_after = math.max(1, wait) end
  end
  if concurrency then hand_out(group, granted) end
  place = place + wanted
  answer[#answer + 1], answer[#answer + 2] = granted, retry_after
end
write('ZADD', base .. ':permits:checks', checks)
return answer
