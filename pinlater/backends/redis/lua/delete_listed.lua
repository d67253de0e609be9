-- Remove those of the jobs given that are in one state.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 now   then per job: priority, id
-- RETURNS  how many; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include references
--#include chain
--#include ends
--#include forget
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local states = string.sub(queue_entry, -1) == '$GROUPS_MARK' and ARGV[2] or string.gsub(ARGV[2], '8', '')
local count = 0
for state in string.gmatch(states, '%d') do
  local prefix, ids = KEYS[2] .. ':s:' .. state .. ':', {}
  for at = 4, #ARGV, 2 do
    if state == '8' then
      if lines_of(KEYS[2]).leave(ARGV[at], {ARGV[at + 1]})[1] then ids[#ids + 1] = ARGV[at + 1] end
    elseif redis.call('ZREM', prefix .. ARGV[at], ARGV[at + 1]) == 1 then
      ids[#ids + 1] = ARGV[at + 1]
    end
  end
  forget(KEYS[1], ARGV[1], tonumber(state), ids, ARGV[3])
  count = count + #ids
end
return count
