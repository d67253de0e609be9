-- What is known of jobs.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 with body (1 or 0)   2 max_bytes   3 with results (1 or 0)   4 the first value however large (1 or 0)
--          then per job: priority, id
-- RETURNS  first how many of the jobs given were examined; then per job that is there: its place (from 0), state, id,
--          run_after, 1 with body + 2 with a result that did not fit, value, and each or '': changed, claim, expiry,
--          finished_at, link, extra, the head of the chain in which it waits, result (its head, where it did not fit);
--          one that is gone, but whose result is kept, has state 7
-- BOUND    the jobs given; SLICE_BYTES of values; bodies up to max_bytes
--#include many
--#include layout
--#include size
--#include extra
--#include describe
local STATES, GONE = {0, 1, 2, 3, WAITING, CANCELLED}, 7
local base, call, with_body, room = KEYS[2], redis.call, ARGV[1] == '1', tonumber(ARGV[2])
local by_priority = {}
for at = 5, #ARGV, 2 do
  local group = by_priority[ARGV[at]]
  if not group then
    group = {ids = {}, places = {}}
    by_priority[ARGV[at]] = group
  end
  table.insert(group.ids, ARGV[at + 1])
  table.insert(group.places, (at - 5) / 2)
end
local few = {base .. ':links'}  -- and whether jobs of these priorities are in line
for priority in pairs(by_priority) do few[#few + 1] = base .. ':s:8:' .. priority end
if call('EXISTS', unpack(few)) > 0 then STATES[#STATES + 1], STATES[#STATES + 2] = REPLAYED, IN_LINE end
local found, is_found = {}, {}
for priority, group in pairs(by_priority) do
  for _, state in ipairs(STATES) do
    local scores = read('ZMSCORE', base .. ':s:' .. state .. ':' .. priority, group.ids)
    for i, score in ipairs(scores) do
      if score then
        table.insert(found, {group.places[i], state, group.ids[i], score})
        is_found[group.places[i]] = true
      end
    end
  end
end

-- The results of those that are there, and of those that are gone.
local with_results, results = ARGV[3] == '1' and call('EXISTS', base .. ':results') == 1, {}
for priority, group in pairs(with_results and by_priority or {}) do
  for i, result in ipairs(read('HMGET', base .. ':results', group.ids)) do
    if result and byte(result, $RESULT_BYTES) % TIERED == tonumber(priority) then
      results[group.places[i]] = result
      if not is_found[group.places[i]] then table.insert(found, {group.places[i], GONE, group.ids[i], 0}) end
    end
  end
end
table.sort(found, function(a, b) return a[1] < b[1] end)
local ids, out, first = {}, {0}, ARGV[4] == '1'
for i, job in ipairs(found) do ids[i] = job[3] end
local function emit(i, value, changed, claim, expiry, finished, link, extra, head)
  local n, job, full, has_body = #out, found[i], 0, false
  local result, short = results[job[1]] or '', value and bodiless(value) or ''
  if result ~= '' then
    room = room - result_bytes(result)
    if room < 0 and not first then result, full = sub(result, 1, $RESULT_BYTES), 2 end
    first = false
  end
  if not value then  -- it is gone
    if job[2] ~= GONE or result == '' then return true end
    value = ''
  end
  if with_body and room >= 0 and job[2] ~= GONE then
    room = room - body_bytes(value)
    if room >= 0 or first then has_body, full = true, full + 1 end
    first = false
  end
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = job[1], job[2], job[3], job[4], full
  out[n + 6] = has_body and value or short
  out[n + 7], out[n + 8], out[n + 9], out[n + 10], out[n + 11] = changed, claim, expiry, finished, link
  out[n + 12], out[n + 13], out[n + 14] = extra, head, result
  return true
end
local read_ids = describe(KEYS[1], base, ids, function(i) return found[i][2] end, emit)
out[1] = read_ids < #ids and found[read_ids + 1][1] or (#ARGV - 4) / 2
return out
