-- Take windows whose key has no live job here and no window that counts, of queues that are here.
-- KEYS     1 ROOT
-- ARGV     1 now   then per window: queue, name of the entry, until, slot, entry
-- RETURNS  how many
-- BOUND    the windows given
--#include many
--#include layout
--#include extra
local root, call, count, deltas = KEYS[1], redis.call, 0, {}
for at = 2, #ARGV, 5 do
  local queue, name, slot = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 3])
  if call('HEXISTS', root .. ':queues', queue) == 1 then
    local keys = root .. ':q:' .. queue .. ':keys'
    local entry = call('HGET', keys, name)
    local until_ms, was_slot = 1, nil
    if entry then until_ms, was_slot = unpack_record($KEY_ENTRY, entry, 9) end
    if until_ms ~= 0 and until_ms <= tonumber(ARGV[1]) then
      call('HSET', keys, name, ARGV[at + 4])
      call('ZADD', root .. ':windows', ARGV[at + 2], queue .. ':' .. name)
      deltas[slot] = (deltas[slot] or 0) + 1
      if was_slot then deltas[was_slot] = (deltas[was_slot] or 0) - 1 end
      count = count + 1
    end
  end
end
count_slots(root, deltas)
return count
