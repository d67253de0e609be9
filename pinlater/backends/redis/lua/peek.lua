-- What a claim would hand out, changing nothing.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 limit   4 max_bytes   5.. priorities, or the levels of a queue whose jobs age
--          (_aging.lua)
-- RETURNS  {ids, run_afters with commas between, values, changed or '', {}}; nil: no such queue
-- BOUND    limit and max_bytes; one page of values at a time
--#include many
--#include layout
--#include size
--#include lines
--#include sweep
--#include aging
local base = KEYS[2]
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
if redis.call('EXISTS', base .. ':extra') == 1 and not sweep(base, ARGV[2], SWEPT) then return {} end
local PAGE = 128
local lines = string.sub(queue_entry, -1) == '$GROUPS_MARK' and lines_of(base)  -- what is not in line yet comes behind
local left, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local ids_out, scores_out, values_out, changed_out = {}, {}, {}, {}
for p = 5, #ARGV do
  local offset, in_line, times_in_line = 0, {}, {}
  if byte(ARGV[p]) >= $AGED then  -- levels: no priority has a name like that, so nothing comes behind
    for i, job in ipairs(aging_of(base, ARGV[p], ARGV[2]).order(lines, left, true)) do
      in_line[i], times_in_line[i] = job.id, job.run_after
    end
  elseif lines then
    in_line, times_in_line = lines.first(ARGV[p], left, tonumber(ARGV[2]), true)
  end
  while left > 0 and room >= 0 do
    local page, ids, scores = math.min(PAGE, left), {}, {}
    for i = offset + 1, math.min(offset + page, #in_line) do ids[#ids + 1], scores[#scores + 1] = in_line[i], times_in_line[i] end
    local from, wanted = math.max(0, offset - #in_line), page - #ids
    local found = wanted == 0 and {} or redis.call(
      'ZRANGEBYSCORE', base .. ':s:0:' .. ARGV[p], '-inf', ARGV[2], 'WITHSCORES', 'LIMIT', from, wanted
    )
    for i = 1, #found, 2 do ids[#ids + 1], scores[#scores + 1] = found[i], found[i + 1] end
    local n = #ids
    if n == 0 then break end
    local at_end = n < page
    local fitting = math.floor(room / redis.call('HSTRLEN', base .. ':jobs', ids[1])) + 1
    if fitting < n then n, at_end = fitting, false end
    for i = #ids, n + 1, -1 do ids[i] = nil end
    local values = redis.call('HMGET', base .. ':jobs', unpack(ids))
    local changed = redis.call('HMGET', base .. ':changed', unpack(ids))
    for i = 1, #ids do
      room = room - body_bytes(values[i])
      if room < 0 and #ids_out > 0 then break end
      local o = #ids_out + 1
      ids_out[o], scores_out[o], values_out[o], changed_out[o] = ids[i], scores[i], values[i], changed[i] or ''
      left = left - 1
    end
    offset = offset + n
    if at_end then break end
  end
end
return {table.concat(ids_out), table.concat(scores_out, ','), values_out, changed_out, {}}
