-- Remove jobs that ended long enough ago, over the queues whose first ended job may have, and old tombstones of queues.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 succeeded before this   3 failed before this   4 tombstones below this version, or ''
--          then per queue with times of its own: queue, succeeded before this, failed before this
-- RETURNS  {queue, removed, ...}; a queue may come twice
-- BOUND    limit jobs, limit tombstones, and per state the queues with times of their own and QUEUES more: those whose ended
--          jobs are all gone take none of the limit
--#include many
--#include layout
--#include forget
--#include config
local QUEUES = 1000
local root, left, answer, call = KEYS[1], tonumber(ARGV[1]), {}, redis.call
local own, names = {}, {}
for at = 5, #ARGV, 3 do
  own[ARGV[at]] = {[2] = ARGV[at + 1], [3] = ARGV[at + 2]}
  names[#names + 1] = ARGV[at]
end

-- The queues in which a job may have ended before the time that counts there: {queue, that time}.
local function due(state)
  local index, list = root .. ':ended:' .. state, {}
  for i, first in ipairs(read('ZMSCORE', index, names)) do
    local before = own[names[i]][state]
    if first and tonumber(first) <= tonumber(before) then list[#list + 1] = {names[i], before} end
  end
  local before, wanted = ARGV[state], left + QUEUES + #names
  for _, queue in ipairs(call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, wanted)) do
    if not own[queue] then list[#list + 1] = {queue, before} end
  end
  return list
end

for state = 2, 3 do
  local index = root .. ':ended:' .. state
  for _, each in ipairs(due(state)) do
    if left <= 0 then break end
    local queue, before = each[1], '(' .. each[2]
    local base = root .. ':q:' .. queue
    local ended = base .. ':ended:' .. state
    local ids = call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', 0, left)
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
    local first = call('ZRANGE', ended, 0, 0, 'WITHSCORES')
    call('ZREM', index, queue)  -- first, since a Redis out of memory refuses to begin with the other
    if first[2] then call('ZADD', index, first[2], queue) end
  end
end

local below = ARGV[4]
if below ~= '' then
  local until_time, limit = string.match(below, '^%d+'), tonumber(ARGV[1])
  local old = call('ZRANGEBYSCORE', root .. ':marks', '-inf', until_time, 'LIMIT', 0, limit)
  for _, name in ipairs(old) do
    if above(below, (parts(call('HGET', root .. ':records', name)))) then
      for _, index in ipairs({':marks', ':revisions'}) do call('ZREM', root .. index, name) end
      for _, hash in ipairs({':records', ':buckets'}) do call('HDEL', root .. hash, name) end
    end
  end
end
return answer
