-- Take the group off jobs of a queue, in whatever state: one step (GroupStore.clear_groups).
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 cursor over BASE:extra   3 the time of the mark as this round began, '' for a further round   4 limit
--          5 the lowest possible priority (the highest number)   6 1: only count
-- RETURNS  {jobs, cursor, time as above}; a cursor of '': no job of the queue has a group; nil: no such queue
-- BOUND    about the limit; as many jobs that were in line; the possible priorities
--#include many
--#include layout
--#include extra
--#include lines
local root, base, queue, limit, call = KEYS[1], KEYS[2], ARGV[1], ARGV[4], redis.call
local entry = call('HGET', root .. ':queues', queue)
if not entry then return false end
if sub(entry, -1) ~= '$GROUPS_MARK' then return {0, '', ''} end
local page = call('HSCAN', base .. ':extra', ARGV[2], 'COUNT', limit)
local cursor, records, jobs, of_priority = page[1], {}, 0, {}
for i = 1, #page[2], 2 do
  local id, e = page[2][i], extra_of(page[2][i + 1])
  if e.group ~= '' then
    e.group, e.flags, jobs = '', e.flags - GROUPED, jobs + 1
    records[#records + 1], records[#records + 2] = id, pack_extra(e)
    of_priority[e.priority] = of_priority[e.priority] or {}
    table.insert(of_priority[e.priority], id)
  end
end
if ARGV[6] == '1' then return {jobs, cursor == '0' and '' or cursor, ''} end

local lines = lines_of(base)
local function put_back(priority, given)
  local ids, run_afters = lines.leave(priority, given)
  local members = {}
  for i, id in ipairs(ids) do members[2 * i - 1], members[2 * i] = run_afters[i], id end
  add(base .. ':s:0:' .. priority, members)
end
for priority, ids in pairs(of_priority) do put_back(priority, ids) end
write('HSET', base .. ':extra', records)
local room, is_empty = tonumber(limit), true
for priority = 1, tonumber(ARGV[5]) do
  if call('EXISTS', base .. ':s:8:' .. priority) == 1 then
    local ids = room > 0 and call('ZRANGE', base .. ':s:8:' .. priority, 0, room - 1) or {}
    put_back(priority, ids)
    room = room - #ids
    is_empty = is_empty and call('EXISTS', base .. ':s:8:' .. priority) == 0
  end
end

-- Each new mark has another time. A round of several steps that began with this one has seen all jobs with groups: none
-- came in meanwhile. It is the last where it found none: after a failover a cursor may pass over some.
local is_first, was_clearing = ARGV[2] == '0', sub(entry, -2, -2) == '$CLEARING_MARK'
if not was_clearing then call('HSET', base .. ':turn', '$CLEARING_MARK', table.concat(call('TIME'), '.')) end
local marked_at = call('HGET', base .. ':turn', '$CLEARING_MARK')
local is_whole = is_first and cursor == '0'
local round = is_first and marked_at or ARGV[3]
if jobs > 0 and not is_whole then round = '' end
if cursor == '0' and round == marked_at and is_empty then
  local keys = {base .. ':turn', base .. ':rooms', base .. ':rooms:until'}
  for priority = 1, tonumber(ARGV[5]) do
    for _, index in ipairs({':lines:', ':turns:', ':ahead:', ':held:'}) do keys[#keys + 1] = base .. index .. priority end
  end
  call('UNLINK', unpack(keys))
  call('HSET', root .. ':queues', queue, string.match(entry, '^%d+'))
  return {jobs, '', ''}
end
if not was_clearing then call('HSET', root .. ':queues', queue, sub(entry, 1, -2) .. '$CLEARING_MARK$GROUPS_MARK') end
return {jobs, cursor, round}
