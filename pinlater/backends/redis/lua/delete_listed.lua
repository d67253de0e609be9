-- Remove those of the jobs given that are in one state.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 state   then per job: priority, id
-- RETURNS  how many; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include forget
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local prefix, ids = KEYS[2] .. ':s:' .. ARGV[2] .. ':', {}
for at = 3, #ARGV, 2 do
  if redis.call('ZREM', prefix .. ARGV[at], ARGV[at + 1]) == 1 then ids[#ids + 1] = ARGV[at + 1] end
end
forget(KEYS[2], tonumber(ARGV[2]), ids)
return #ids
