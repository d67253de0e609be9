-- The smallest run_after of the pending jobs of each queue.
-- KEYS     1 ROOT
-- ARGV     1 number of priorities, the priorities, then the queues
-- RETURNS  per queue: the time, or '' where nothing is pending; nil: no such queue
-- BOUND    the priorities of each queue given
local root, call, answer = KEYS[1], redis.call, {}
local last = 1 + tonumber(ARGV[1])
for i = last + 1, #ARGV do
  local queue, earliest = ARGV[i], ''
  local queue_entry = call('HGET', root .. ':queues', queue)
  if not queue_entry then earliest = false end
  local states = queue_entry and string.sub(queue_entry, -1) == '$GROUPS_MARK' and {'0', '8'} or {'0'}
  for p = 2, earliest and last or 0 do
    for _, state in ipairs(states) do
      local first = call('ZRANGE', root .. ':q:' .. queue .. ':s:' .. state .. ':' .. ARGV[p], 0, 0, 'WITHSCORES')[2]
      if first and (earliest == '' or tonumber(first) < tonumber(earliest)) then earliest = first end
    end
  end
  answer[i - last] = earliest
end
return answer
