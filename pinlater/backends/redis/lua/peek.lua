-- What a claim would hand out, changing nothing.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 limit   4 max_bytes   5.. priorities
-- RETURNS  {ids, run_afters with commas between, values, changed or ''}; nil: no such queue
-- BOUND    limit and max_bytes; one page of values at a time
--#include many
--#include layout
--#include size
--#include sweep
local base = KEYS[2]
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
if redis.call('EXISTS', base .. ':extra') == 1 and not sweep(base, ARGV[2], SWEPT) then return {} end
local PAGE = 128
local left, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local ids_out, scores_out, values_out, changed_out = {}, {}, {}, {}
for p = 5, #ARGV do
  local offset = 0
  while left > 0 and room >= 0 do
    local page = math.min(PAGE, left)
    local found = redis.call(
      'ZRANGEBYSCORE', base .. ':s:0:' .. ARGV[p], '-inf', ARGV[2], 'WITHSCORES', 'LIMIT', offset, page
    )
    local n = #found / 2
    if n == 0 then break end
    local at_end, ids = n < page, {}
    local fitting = math.floor(room / redis.call('HSTRLEN', base .. ':jobs', found[1])) + 1
    if fitting < n then n, at_end = fitting, false end
    for i = 1, n do ids[i] = found[2 * i - 1] end
    local values = redis.call('HMGET', base .. ':jobs', unpack(ids))
    local changed = redis.call('HMGET', base .. ':changed', unpack(ids))
    for i = 1, #ids do
      room = room - body_bytes(values[i])
      if room < 0 and #ids_out > 0 then break end
      local o = #ids_out + 1
      ids_out[o], scores_out[o], values_out[o], changed_out[o] = ids[i], found[2 * i], values[i], changed[i] or ''
      left = left - 1
    end
    offset = offset + n
    if at_end then break end
  end
end
return {table.concat(ids_out), table.concat(scores_out, ','), values_out, changed_out}
