-- How many jobs of each state there are, by priority; exact, since Redis keeps these counts.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3.. priorities
-- RETURNS  per priority: ready, scheduled, in progress, succeeded, failed, and the smallest run_after of those that are
--          ready, or '', waiting, cancelled, replayed, ready in groups that are held back; nil: no such queue
-- BOUND    the priorities given, SWEPT jobs whose time is over, and HELD_AT_ONCE groups that are held back
--#include many
--#include layout
--#include lines
--#include sweep
local base, call, answer = KEYS[2], redis.call, {}
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local lines = sub(queue_entry, -1) == '$GROUPS_MARK' and lines_of(base)
if call('EXISTS', base .. ':extra') == 1 then sweep(base, ARGV[2], SWEPT) end
for i = 3, #ARGV do
  local pending, n = base .. ':s:0:' .. ARGV[i], #answer
  local ready = call('ZCOUNT', pending, '-inf', ARGV[2])
  answer[n + 1], answer[n + 2] = ready, call('ZCARD', pending) - ready
  for state = 1, 3 do answer[n + 2 + state] = call('ZCARD', base .. ':s:' .. state .. ':' .. ARGV[i]) end
  answer[n + 6] = ready > 0 and call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or ''
  for state = 4, 6 do answer[n + 3 + state] = call('ZCARD', base .. ':s:' .. state .. ':' .. ARGV[i]) end
  answer[n + 10] = 0
  local first = lines and call('ZRANGE', base .. ':s:8:' .. ARGV[i], 0, 0, 'WITHSCORES')[2]
  if first then
    answer[n + 1] = ready + call('ZCARD', base .. ':s:8:' .. ARGV[i])
    if ready == 0 or tonumber(first) < tonumber(answer[n + 6]) then answer[n + 6] = first end
    answer[n + 10] = lines.held_jobs(ARGV[i], ARGV[2])
  end
end
return answer
