-- The first job behind each barrier is the head of its chain. The first write removes.
-- KEYS     1 ROOT
-- ARGV     1 now   then per barrier: serialize key, shard id
-- RETURNS  {queue, {run_after, ...}, ...}
-- BOUND    the barriers given
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
local root, now, call, freed, answer = KEYS[1], tonumber(ARGV[1]), redis.call, {}, {}
for at = 2, #ARGV, 2 do
  if call('HGET', root .. ':barriers', ARGV[at]) == ARGV[at + 1] then
    call('HDEL', root .. ':barriers', ARGV[at])
    free_next(root, ARGV[at], now, freed)
  end
end
notify_freed(root, now, freed)
for queue, times in pairs(freed) do
  answer[#answer + 1] = queue
  answer[#answer + 1] = times
end
return answer
