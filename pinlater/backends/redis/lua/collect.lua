-- Remove jobs that ended long enough ago, over the queues whose first ended job may have.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 succeeded before this   3 failed before this
-- RETURNS  {queue, removed, ...}; a queue may come twice
-- BOUND    limit jobs, and per state QUEUES queues more: those whose ended jobs are all gone take none of the limit
--#include many
--#include records
--#include forget
local QUEUES = 1000
local root, left, answer = KEYS[1], tonumber(ARGV[1]), {}
for state = 2, 3 do
  local index, before = root .. ':ended:' .. state, '(' .. ARGV[state]
  for _, queue in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, left + QUEUES)) do
    if left <= 0 then break end
    local base = root .. ':q:' .. queue
    local ended = base .. ':ended:' .. state
    local ids = redis.call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', 0, left)
    local claims, out = read('HMGET', base .. ':claims', ids), {}
    for i, id in ipairs(ids) do
      local priority = byte(claims[i], DESCRIPTOR_AT - 1)
      out[priority] = out[priority] or {}
      table.insert(out[priority], id)
    end
    for priority, members in pairs(out) do write('ZREM', base .. ':s:' .. state .. ':' .. priority, members) end
    forget(base, state, ids)
    left = left - #ids
    if #ids > 0 then
      answer[#answer + 1] = queue
      answer[#answer + 1] = #ids
    end
    local first = redis.call('ZRANGE', ended, 0, 0, 'WITHSCORES')
    redis.call('ZREM', index, queue)  -- first, since a Redis out of memory refuses to begin with the other
    if first[2] then redis.call('ZADD', index, first[2], queue) end
  end
end
return answer
