-- Eligible jobs per priority.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3.. priorities
-- RETURNS  a count per priority, and where the queue has groups the sum of the weights of those in line; nil: no such queue
-- BOUND    the priorities given, SWEPT jobs whose time is over, and HELD_AT_ONCE groups that are held back
--#include many
--#include layout
--#include lines
--#include sweep
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
if redis.call('EXISTS', KEYS[2] .. ':extra') == 1 then sweep(KEYS[2], ARGV[2], SWEPT) end
local counts = {}
for i = 3, #ARGV do counts[i - 2] = redis.call('ZCOUNT', KEYS[2] .. ':s:0:' .. ARGV[i], '-inf', ARGV[2]) end
if string.sub(queue_entry, -1) == '$GROUPS_MARK' then
  local lines = lines_of(KEYS[2])
  for i = 3, #ARGV do
    counts[i - 2] = counts[i - 2] + redis.call('ZCARD', KEYS[2] .. ':s:8:' .. ARGV[i]) - lines.held_jobs(ARGV[i], ARGV[2])
    counts[#counts + 1] = lines.weights(ARGV[i])
  end
end
return counts
