-- End the claims given as if they had expired, where they still stand and were not renewed since.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 crash budget   4 send failed ones to the dead letters (1 or 0)
--          5-8 the words of the status lines
--          then per job: priority, id, descriptor, when the claim was last seen
-- RETURNS  {retried, failed, cancelled}
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include ends
--#include trails
--#include expire
local base, jobs, seen = KEYS[2], {}, {}
for at = 9, #ARGV, 4 do
  local id = ARGV[at + 1]
  if not seen[id] and redis.call('ZSCORE', base .. ':s:1:' .. ARGV[at], id) then
    local claim = redis.call('HGET', base .. ':claims', id)
    local claimed_at, timeout = unpack_record(CLAIM, claim)
    local seen_at = tonumber(redis.call('ZSCORE', base .. ':expiry', id)) - timeout
    -- After a checkpoint the time-out may run from a later time, and several from the same one.
    if seen_at ~= claimed_at then seen_at = unpack_record(CHANGED, redis.call('HGET', base .. ':changed', id)) end
    if sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] and seen_at == tonumber(ARGV[at + 3]) then
      seen[id] = true
      jobs[#jobs + 1] = {id, claim}
    end
  end
end
local words = {ARGV[5], ARGV[6], ARGV[7], ARGV[8]}
return {expire(KEYS[1], ARGV[1], jobs, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', words)}
