-- Remove windows that are as they were listed.
-- KEYS     1 ROOT
-- ARGV     per window: queue, name of the entry, until
-- RETURNS  how many
-- BOUND    the windows given
--#include many
--#include layout
--#include extra
local root, call, count, deltas = KEYS[1], redis.call, 0, {}
for at = 1, #ARGV, 3 do
  local keys, name = root .. ':q:' .. ARGV[at] .. ':keys', ARGV[at + 1]
  local entry = call('HGET', keys, name)
  local until_ms, slot = 0, 0
  if entry then until_ms, slot = unpack_record($KEY_ENTRY, entry, 9) end
  if entry and until_ms == tonumber(ARGV[at + 2]) then
    call('HDEL', keys, name)
    call('ZREM', root .. ':windows', ARGV[at] .. ':' .. name)
    deltas[slot] = (deltas[slot] or 0) - 1
    count = count + 1
  end
end
count_slots(root, deltas)
return count
