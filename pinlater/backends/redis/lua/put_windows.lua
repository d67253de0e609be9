-- Take windows whose key has no entry here, of queues that are here.
-- KEYS     1 ROOT
-- ARGV     per window: queue, name of the entry, until, slot, entry
-- RETURNS  how many
-- BOUND    the windows given
--#include many
--#include layout
--#include extra
local root, call, count, deltas = KEYS[1], redis.call, 0, {}
for at = 1, #ARGV, 5 do
  local queue, name, slot = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 3])
  if call('HEXISTS', root .. ':queues', queue) == 1 then
    if call('HSETNX', root .. ':q:' .. queue .. ':keys', name, ARGV[at + 4]) == 1 then
      call('ZADD', root .. ':windows', ARGV[at + 2], queue .. ':' .. name)
      deltas[slot] = (deltas[slot] or 0) + 1
      count = count + 1
    end
  end
end
count_slots(root, deltas)
return count
