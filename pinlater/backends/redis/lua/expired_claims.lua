-- The claims of queues whose time is over. No job changes; a queue whose earliest claim has ended by other ways is no
-- longer among those that may have something due.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 now   from 3 on: the queues
-- RETURNS  per queue with something due {queue, then per claim: id, expiry, claim, changed or '', 1 where its job was
--          asked to stop, else 0}
-- BOUND    limit claims, and the queues given
--#include many
--#include layout
--#include extra
local root, left, now, call, answer = KEYS[1], tonumber(ARGV[1]), ARGV[2], redis.call, {}
if #call('ZRANGEBYSCORE', root .. ':claimed', '-inf', '(' .. now, 'LIMIT', 0, 1) == 0 then return answer end
local queues = {}
for at = 3, #ARGV do queues[at - 2] = ARGV[at] end
for i, bound in ipairs(read('ZMSCORE', root .. ':claimed', queues)) do
  if left > 0 and bound and tonumber(bound) < tonumber(now) then
    local queue = queues[i]
    local base = root .. ':q:' .. queue
    local due = call('ZRANGEBYSCORE', base .. ':expiry', '-inf', '(' .. now, 'WITHSCORES', 'LIMIT', 0, left)
    local ids, own = {}, {queue}
    for at = 1, #due, 2 do ids[#ids + 1] = due[at] end
    local claims, changed = read('HMGET', base .. ':claims', ids), read('HMGET', base .. ':changed', ids)
    local extras = call('EXISTS', base .. ':extra') == 1 and read('HMGET', base .. ':extra', ids) or {}
    for n, id in ipairs(ids) do
      local at = #own
      own[at + 1], own[at + 2], own[at + 3], own[at + 4] = id, due[2 * n], claims[n], changed[n] or ''
      own[at + 5] = extras[n] and is_to_stop(extras[n]) and extra_of(extras[n]).by ~= '' and 1 or 0
    end
    left = left - #ids
    if #ids > 0 then
      answer[#answer + 1] = own
    else
      local first = call('ZRANGE', base .. ':expiry', 0, 0, 'WITHSCORES')
      call('ZREM', root .. ':claimed', queue)  -- first, since a Redis out of memory refuses to begin with the other
      if first[2] then call('ZADD', root .. ':claimed', first[2], queue) end
    end
  end
end
return answer
