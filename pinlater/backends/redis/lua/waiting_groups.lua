-- The groups that wait for their turns, with their weights.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2.. priorities
-- RETURNS  per priority {groups, weights}; nothing where no job of the queue has a group; nil: no such queue
-- BOUND    WEIGHED groups for each of the priorities
--#include many
--#include layout
--#include lines
local queue_entry, answer = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1]), {}
if not queue_entry then return false end
if string.sub(queue_entry, -1) == '$GROUPS_MARK' then
  local lines = lines_of(KEYS[2])
  for i = 2, #ARGV do answer[i - 1] = {lines.waiting(ARGV[i])} end
end
return answer
