-- Groups with jobs in line, by name.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the first name   3 limit   4 the most jobs to count   5 '' or a time: see whether groups are held
--          back then   6.. priorities
-- RETURNS  per priority {group, jobs in line, run_after of the first of them, 1 where it is held back, else 0, ...}; nil:
--          no such queue
-- BOUND    the limit, for each of the priorities
--#include layout
local base, call = KEYS[2], redis.call
if call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local answer = {}
for p = 6, #ARGV do
  local key, from, found = base .. ':lines:' .. ARGV[p], '[' .. ARGV[2] .. '\0', {}
  while #found < 4 * tonumber(ARGV[3]) do
    local member = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local group = sub(member, 1, #member - 17)
    from = '[' .. group .. '\1'
    local n = #found
    found[n + 1] = group
    found[n + 2] = math.min(tonumber(ARGV[4]), call('ZLEXCOUNT', key, '[' .. group .. '\0', '(' .. group .. '\1'))
    found[n + 3] = string.format('%.0f', (unpack_record('>I8', member, #member - 15)))
    local until_ms = ARGV[5] ~= '' and call('ZSCORE', base .. ':held:' .. ARGV[p], group)
    found[n + 4] = until_ms and tonumber(until_ms) > tonumber(ARGV[5]) and 1 or 0
  end
  answer[#answer + 1] = found
end
return answer
