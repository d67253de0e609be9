-- What is known of jobs.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 with body (2: the first however large, 1, or 0)   2 max_bytes   then per job: priority, id
-- RETURNS  first how many of the jobs given were looked at; then per job that is there: its place (from 0), state, id,
--          run_after, 1 with body or 0, value, and each or '': changed, claim, expiry, finished_at, link
-- BOUND    the jobs given; SLICE_BYTES of values; bodies up to max_bytes
--#include many
--#include layout
--#include describe
local base, with_body, room = KEYS[2], ARGV[1] ~= '0', tonumber(ARGV[2])
local by_priority = {}
for at = 3, #ARGV, 2 do
  local group = by_priority[ARGV[at]]
  if not group then
    group = {ids = {}, places = {}}
    by_priority[ARGV[at]] = group
  end
  table.insert(group.ids, ARGV[at + 1])
  table.insert(group.places, (at - 3) / 2)
end
local found = {}
for priority, group in pairs(by_priority) do
  for state = 0, 3 do
    local scores = read('ZMSCORE', base .. ':s:' .. state .. ':' .. priority, group.ids)
    for i, score in ipairs(scores) do
      if score then table.insert(found, {group.places[i], state, group.ids[i], score}) end
    end
  end
end
table.sort(found, function(a, b) return a[1] < b[1] end)
local ids, out, first = {}, {0}, ARGV[1] == '2'
for i, job in ipairs(found) do ids[i] = job[3] end
local read_ids = describe(base, ids, function(i) return found[i][2] end, function(i, value, changed, claim, expiry, finished, link)
  local n, short, full = #out, bodiless(value), 0
  if with_body and room >= 0 then
    room = room - (#value - #short)
    if room >= 0 or first then full = 1 end
    first = false
  end
  local job = found[i]
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = job[1], job[2], job[3], job[4], full
  out[n + 6] = full == 1 and value or short
  out[n + 7], out[n + 8], out[n + 9], out[n + 10], out[n + 11] = changed, claim, expiry, finished, link
  return true
end)
out[1] = read_ids < #ids and found[read_ids + 1][1] or (#ARGV - 2) / 2
return out
