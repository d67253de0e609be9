-- End PENDING jobs whose time is over, over the queues whose earliest may be. The first write removes.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 now   3-4 the words of the status line around the time   5 send failed ones to the dead letters (1
--          or 0)   then per queue with rules of its own: queue, send failed ones to the dead letters
-- RETURNS  {queue, failed, ...}
-- BOUND    limit jobs, and QUEUES queues more: those whose jobs all ended otherwise take none of the limit
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include ends
--#include lines
--#include sweep
local QUEUES = 1000
local root, left, now, call = KEYS[1], tonumber(ARGV[1]), ARGV[2], redis.call
local due = call('ZRANGEBYSCORE', root .. ':until', '-inf', now, 'LIMIT', 0, left + QUEUES)
if #due == 0 then return {} end
local dead_letters, answer = {}, {}
for at = 6, #ARGV, 2 do dead_letters[ARGV[at]] = ARGV[at + 1] == '1' end

local function end_jobs(queue, base, ids)
  local into_dead = dead_letters[queue]
  if into_dead == nil then into_dead = ARGV[5] == '1' end
  local extras, changed = read('HMGET', base .. ':extra', ids), read('HMGET', base .. ':changed', ids)
  local ends, new, ended, moves, told = new_ends(root, now), {}, {}, {}, {}
  write('ZREM', base .. ':expired', ids)
  for i, id in ipairs(ids) do
    local priority = extras[i] and byte(extras[i], $EXTRA_FLAGS_AT - 1)
    local run_after = priority and call('ZSCORE', base .. ':s:4:' .. priority, id)
    if run_after then
      local _, expires = unpack_record($EXTRA, extras[i])
      local allowed, crashes, status = nil, 0, nil
      if changed[i] then
        _, allowed, crashes, status = mutable(changed[i])
      else
        local value, status_bytes = call('HGET', base .. ':jobs', id), nil
        _, allowed, _, status_bytes = unpack_record(HEAD, value)
        status = sub(value, $HEAD_BYTES + 1, $HEAD_BYTES + status_bytes)
      end
      local line = ARGV[3] .. string.format('%.0f', expires) .. ARGV[4]
      new[#new + 1] = id
      new[#new + 1] = pack(CHANGED, tonumber(now), 0, allowed, crashes) .. append(status, line)
      ended[#ended + 1] = now
      ended[#ended + 1] = id
      moves[priority] = moves[priority] or {out = {}, into = {}}
      local out, into = moves[priority].out, moves[priority].into
      out[#out + 1], into[#into + 1] = id, run_after
      into[#into + 1] = id
      told[#told + 1] = id
      add_end(ends, queue, id, extras[i], true, STAYS)
    end
  end
  for priority, move in pairs(moves) do
    write('ZREM', base .. ':s:4:' .. priority, move.out)
    write('ZADD', base .. ':s:3:' .. priority, move.into)
  end
  write('HSET', base .. ':changed', new)
  local index = into_dead and ':dead' or ':ended:3'
  write('ZADD', base .. index, ended)
  if #told > 0 then call('ZADD', root .. index, 'LT', now, queue) end
  finish_ends(ends)
  tell_ends(root, queue, told)
  return #told
end

for _, queue in ipairs(due) do
  if left <= 0 then break end
  local base = root .. ':q:' .. queue
  sweep(base, now, left)
  local ids = call('ZRANGE', base .. ':expired', 0, left - 1)
  if #ids > 0 then
    left = left - #ids
    local count = end_jobs(queue, base, ids)
    if count > 0 then
      answer[#answer + 1] = queue
      answer[#answer + 1] = count
    end
  end
  local first = call('ZRANGE', base .. ':expired', 0, 0, 'WITHSCORES')[2]
  local later = call('ZRANGE', base .. ':until', 0, 0, 'WITHSCORES')[2]
  call('ZREM', root .. ':until', queue)  -- first, since a Redis out of memory refuses to begin with the other
  if first or later then call('ZADD', root .. ':until', first or later, queue) end
end
return answer
