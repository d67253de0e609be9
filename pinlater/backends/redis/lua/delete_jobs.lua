-- Remove jobs of one state and priority.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 priority   4 limit   5 now
-- RETURNS  how many; nil: no such queue
-- BOUND    limit
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
local count, limit = 0, tonumber(ARGV[4])
for state in string.gmatch(states, '%d') do
  local key = KEYS[2] .. ':s:' .. state .. ':' .. ARGV[3]
  local ids = limit > count and redis.call('ZRANGE', key, 0, limit - count - 1) or {}
  if #ids > 0 then
    if state == '8' then
      lines_of(KEYS[2]).leave(ARGV[3], ids)
    else
      redis.call('ZREMRANGEBYRANK', key, 0, #ids - 1)
    end
    forget(KEYS[1], ARGV[1], tonumber(state), ids, ARGV[5])
    count = count + #ids
  end
end
return count
