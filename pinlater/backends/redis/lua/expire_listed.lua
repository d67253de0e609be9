-- End the claims given as expired, where they still stand and expire when it is said.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 crash budget   4 send failed ones to the dead letters (1 or 0)
--          5-8 the words of the status lines
--          then per job: priority, id, descriptor, when the claim expires, how long a retry waits
-- RETURNS  one character per job: 0 ignored, 2 retried, 3 failed, 5 cancelled
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include ends
--#include trails
--#include expire
local MAX_TIME = 9007199254740991
local base, now, jobs, codes, order = KEYS[2], tonumber(ARGV[2]), {}, {}, {}
for at = 9, #ARGV, 5 do
  local id, n = ARGV[at + 1], #order + 1
  order[n] = false
  if not codes[id] and redis.call('ZSCORE', base .. ':s:1:' .. ARGV[at], id) then
    local claim = redis.call('HGET', base .. ':claims', id)
    if sub(claim, DESCRIPTOR_AT) == ARGV[at + 2]
        and tonumber(redis.call('ZSCORE', base .. ':expiry', id)) == tonumber(ARGV[at + 3]) then
      codes[id], order[n] = '0', id
      local run_after = string.format('%.0f', math.min(now + tonumber(ARGV[at + 4]), MAX_TIME))
      jobs[#jobs + 1] = {id, claim, run_after}
    end
  end
end
expire(KEYS[1], ARGV[1], jobs, now, tonumber(ARGV[3]), ARGV[4] == '1', {ARGV[5], ARGV[6], ARGV[7], ARGV[8]}, codes)
for n, id in ipairs(order) do order[n] = id and codes[id] or '0' end
return table.concat(order)
