-- Jobs back to PENDING where the claim matches, with all attempts.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 now   then per job: priority, id, claim descriptor
-- RETURNS  how many
-- BOUND    the jobs given
--#include layout
--#include notify
local base, call, times = KEYS[2], redis.call, {}
for at = 2, #ARGV, 3 do
  local priority, id = ARGV[at], ARGV[at + 1]
  local run_after = call('ZSCORE', base .. ':s:1:' .. priority, id)
  local claim = run_after and call('HGET', base .. ':claims', id)
  if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] then
    local remaining, allowed, crashes, status = mutable(call('HGET', base .. ':changed', id), claim)
    call('ZREM', base .. ':s:1:' .. priority, id)
    call('ZREM', base .. ':expiry', id)
    call('HDEL', base .. ':claims', id)
    call('ZADD', base .. ':s:0:' .. priority, run_after, id)
    call('HSET', base .. ':changed', id, pack(CHANGED, tonumber(ARGV[1]), remaining, allowed, crashes) .. status)
    times[#times + 1] = run_after
  end
end
notify(base, tonumber(ARGV[1]), times)
return #times
