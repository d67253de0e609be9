-- Remove those of the jobs given that are in one state.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 now   then per job: priority, id
-- RETURNS  how many; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include references
--#include chain
--#include ends
--#include forget
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local count = 0
for state in string.gmatch(ARGV[2], '%d') do
  local prefix, ids = KEYS[2] .. ':s:' .. state .. ':', {}
  for at = 4, #ARGV, 2 do
    if redis.call('ZREM', prefix .. ARGV[at], ARGV[at + 1]) == 1 then ids[#ids + 1] = ARGV[at + 1] end
  end
  forget(KEYS[1], ARGV[1], tonumber(state), ids, ARGV[3])
  count = count + #ids
end
return count
