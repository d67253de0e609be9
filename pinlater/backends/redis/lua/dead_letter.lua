-- Copy failed jobs to the queues for their dead letters. They stay pending where a Redis out of memory refuses.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 now   3 the lowest id that may be given: now in microseconds   4 shard id   5-9 the words of the
--          line of history   then per queue with a target: queue, the target's queue, attempts allowed there
-- RETURNS  {queue, copied, ...}
-- BOUND    limit jobs, BYTES of values and one more; the queues that have jobs pending
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include references
--#include chain
--#include keys
--#include links
--#include tags
--#include copy
local BYTES = 33554432
local root, now, call = KEYS[1], ARGV[2], redis.call
local left, room, lowest, shard = tonumber(ARGV[1]), BYTES, tonumber(ARGV[3]), ARGV[4]
local queues = call('ZRANGE', root .. ':dead', 0, -1)
if #queues == 0 then return {} end
local targets, answer = {}, {}
for at = 10, #ARGV, 3 do targets[ARGV[at]] = {queue = ARGV[at + 1], attempts = tonumber(ARGV[at + 2])} end

-- Copy one job; it is pending no more, and from now on it is pruned like others that failed.
local function move(queue, base, id, finished, target)
  local value = call('HGET', base .. ':jobs', id)
  local created, _, priority = unpack_record(HEAD, value)
  if priority >= TIERED then
    local R = references(root)
    R.share(R.of_job(value))
    priority = priority - TIERED
  end
  local changed = call('HGET', base .. ':changed', id)
  local _, remaining, allowed, crashes = unpack_record(CHANGED, changed)
  local origin = named(queue, shard, priority, id)
  local history = ARGV[5] .. origin .. ARGV[6] .. string.format('%.0f', created) .. ARGV[7] .. allowed .. ARGV[8]
    .. crashes .. ARGV[9]
  local status = sub(changed, CHANGED_STATUS_AT)
  local attempts, letter_status = target.attempts, cut(history .. status)
  local e, was_allowed = keys_of(base, id), tostring(allowed)
  local moved_to = copy(root, shard, target.queue, value, attempts, letter_status, now, lowest, origin, was_allowed, e)
  local came_from, came_with = linked(base, id)
  link(base, id, came_from, came_with, moved_to)
  call('HSET', base .. ':changed', id, pack(CHANGED, tonumber(now), remaining, allowed, crashes) .. status)
  call('ZREM', base .. ':dead', id)
  call('ZADD', base .. ':ended:3', finished, id)
  call('ZADD', root .. ':ended:3', 'LT', finished, queue)
  room = room - #value
end

for _, queue in ipairs(queues) do
  if left <= 0 or room < 0 then break end
  local target, base = targets[queue], root .. ':q:' .. queue
  if target and call('HEXISTS', root .. ':queues', target.queue) == 1 then
    local pending = call('ZRANGE', base .. ':dead', 0, left - 1, 'WITHSCORES')
    local count = 0
    for i = 1, #pending, 2 do
      if room < 0 then break end
      move(queue, base, pending[i], pending[i + 1], target)
      count = count + 1
    end
    left = left - count
    if count > 0 then
      answer[#answer + 1] = queue
      answer[#answer + 1] = count
    end
    local first = call('ZRANGE', base .. ':dead', 0, 0, 'WITHSCORES')
    call('ZREM', root .. ':dead', queue)
    if first[2] then call('ZADD', root .. ':dead', first[2], queue) end
  end
end
return answer
