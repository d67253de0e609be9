-- End claims that expired, over the queues whose earliest claim may have.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 now   3-6 the words of the status lines   7 crash budget
--          8 send failed ones to the dead letters (1 or 0)
--          then per queue with rules of its own: queue, crash budget ('': its claims are left alone), send failed ones
--          to the dead letters
-- RETURNS  {queue, retried, failed, cancelled, ...}
-- BOUND    limit jobs, and QUEUES queues more, with those that are left alone: these, and those whose claims were all
--          ended otherwise, take none of the limit
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include ends
--#include trails
--#include expire
local QUEUES = 1000
local root, left, now = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local words, answer = {ARGV[3], ARGV[4], ARGV[5], ARGV[6]}, {}
local others, rules_of, left_alone = {budget = tonumber(ARGV[7]), dead_letters = ARGV[8] == '1'}, {}, 0
for at = 9, #ARGV, 3 do
  rules_of[ARGV[at]] = {budget = tonumber(ARGV[at + 1]), dead_letters = ARGV[at + 2] == '1'}
  if ARGV[at + 1] == '' then left_alone = left_alone + 1 end
end

local function expire_in(queue, rules)
  local base = root .. ':q:' .. queue
  local ids = redis.call('ZRANGEBYSCORE', base .. ':expiry', '-inf', '(' .. now, 'LIMIT', 0, left)
  local claims, jobs = read('HMGET', base .. ':claims', ids), {}
  for i, id in ipairs(ids) do jobs[i] = {id, claims[i]} end
  local retried, failed, cancelled = expire(root, queue, jobs, tonumber(now), rules.budget, rules.dead_letters, words)
  left = left - #ids
  if #ids > 0 then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = queue, retried, failed, cancelled
  end
  local first = redis.call('ZRANGE', base .. ':expiry', 0, 0, 'WITHSCORES')
  redis.call('ZREM', root .. ':claimed', queue)  -- first, since a Redis out of memory refuses to begin with the other
  if first[2] then redis.call('ZADD', root .. ':claimed', first[2], queue) end
end

local due = redis.call('ZRANGEBYSCORE', root .. ':claimed', '-inf', '(' .. now, 'LIMIT', 0, left + QUEUES + left_alone)
for _, queue in ipairs(due) do
  local rules = rules_of[queue] or others
  if left <= 0 then break end
  if rules.budget then expire_in(queue, rules) end
end
return answer
