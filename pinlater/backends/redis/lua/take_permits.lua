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
local holders, known, permits, checks, answer, place = {}, {}, {}, {}, {}, 0
for i = 1, count do holders[i] = ARGV[4 + i] end
call('HDEL', base .. ':permits', '')  -- what is written later is not refused then
for i, record in ipairs(read('HMGET', base .. ':permits', holders)) do known[i] = record and group_and_claim(record) end

-- How many of the `wanted` claims from this place on can have permits, where so many are free beside those that they have.
local function first_that_fit(group, wanted, free)
  for i = 1, wanted do
    if known[place + i] ~= group then
      if free <= 0 then return i - 1 end
      free = free - 1
    end
  end
  return wanted
end

-- The permits that these claims have are replaced.
local function hand_out(group, granted, is_counted)
  local had, groups = {}, {}
  for i = place + 1, place + granted do
    if known[i] then had[#had + 1], groups[#groups + 1] = holders[i], known[i] end
  end
  take_back(base, had, groups)
  if not is_counted or granted == 0 then return end
  for i = place + 1, place + granted do
    local n = #checks
    permits[n + 1], permits[n + 2] = holders[i], ARGV[4 + count + i]
    checks[n + 1], checks[n + 2] = ARGV[3], holders[i]
  end
  call('HINCRBY', base .. ':permits:counts', group, granted)
end

for at = 5 + 2 * count, #ARGV, 5 do
  local group, wanted, retry_after = ARGV[at], tonumber(ARGV[at + 1]), 0
  local concurrency, per_second, capacity = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local granted = concurrency and first_that_fit(group, wanted, concurrency - count_of(base, group)) or wanted
  if per_second and granted > 0 then
    local allowed, level, _, shards = granted, beside(base, group)
    local tokens, filled_at, wait
    granted, tokens, filled_at, wait = take_tokens(level, allowed, per_second, capacity, now)
    local full_at = string.format('%.0f', filled_at + (capacity - tokens) * 1000 / per_second)
    put_beside(base, group, level_of(tokens, filled_at), full_at, shards)
    if granted < allowed then retry_after = math.max(1, wait) end
  end
  hand_out(group, granted, concurrency)
  place = place + wanted
  answer[#answer + 1], answer[#answer + 2] = granted, retry_after
end
write('HSET', base .. ':permits', permits)
write('ZADD', base .. ':permits:checks', checks)
return answer
