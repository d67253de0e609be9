-- Remove jobs that ended long enough ago, over the queues whose first ended job may have, and old tombstones, with marks of schedules;
-- results and windows of keys whose time has passed; and what extended jobs of deleted queues have left.
-- KEYS     1 ROOT
-- ARGV     1 limit   2 succeeded before this   3 failed before this   4 tombstones below this version, or ''   5 now
--          then per queue with times of its own: queue, succeeded before this, failed before this
-- RETURNS  {queue, removed, ...}; a queue may come twice
-- BOUND    limit jobs, results, windows, jobs and keys of deleted queues, and tombstones each, and per state the queues with times of their own and QUEUES more: those whose ended
--          jobs are all gone take none of the limit
--#include many
--#include layout
--#include config
--#include notify
--#include extra
--#include references
--#include chain
--#include ends
--#include forget
local QUEUES = 1000
local root, left, answer, call = KEYS[1], tonumber(ARGV[1]), {}, redis.call
local own, names = {}, {}
for at = 6, #ARGV, 3 do
  own[ARGV[at]] = {[2] = ARGV[at + 1], [3] = ARGV[at + 2]}
  names[#names + 1] = ARGV[at]
end

-- The queues in which a job may have ended before the time that counts there: {queue, that time}.
local function due(state)
  local index, list = root .. ':ended:' .. state, {}
  for i, first in ipairs(read('ZMSCORE', index, names)) do
    local before = own[names[i]][state]
    if first and tonumber(first) <= tonumber(before) then list[#list + 1] = {names[i], before} end
  end
  local before, wanted = ARGV[state], left + QUEUES + #names
  for _, queue in ipairs(call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, wanted)) do
    if not own[queue] then list[#list + 1] = {queue, before} end
  end
  return list
end

for state = 2, 3 do
  local index = root .. ':ended:' .. state
  for _, each in ipairs(due(state)) do
    if left <= 0 then break end
    local queue, before = each[1], '(' .. each[2]
    local base = root .. ':q:' .. queue
    local ended = base .. ':ended:' .. state
    local ids = call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', 0, left)
    local claims, out = read('HMGET', base .. ':claims', ids), {}
    for i, id in ipairs(ids) do
      local priority = claims[i] and byte(claims[i], DESCRIPTOR_AT - 1)
      priority = priority or byte(call('HGET', base .. ':extra', id), $EXTRA_FLAGS_AT - 1)  -- it expired unclaimed
      out[priority] = out[priority] or {}
      table.insert(out[priority], id)
    end
    for priority, members in pairs(out) do
      write('ZREM', base .. ':s:' .. state .. ':' .. priority, members)
      for other = CANCELLED, state == 3 and REPLAYED or 0 do write('ZREM', base .. ':s:' .. other .. ':' .. priority, members) end
    end
    forget(root, queue, state, ids, ARGV[5], WINDOWS)
    left = left - #ids
    if #ids > 0 then
      answer[#answer + 1] = queue
      answer[#answer + 1] = #ids
    end
    local first = call('ZRANGE', ended, 0, 0, 'WITHSCORES')
    call('ZREM', index, queue)  -- first, since a Redis out of memory refuses to begin with the other
    if first[2] then call('ZADD', index, first[2], queue) end
  end
end

local now, limit = ARGV[5], tonumber(ARGV[1])

-- Versions before trails remove jobs without theirs: of one queue that has any some are looked at, by chance.
local TRAILS = 20
local traced = call('SRANDMEMBER', root .. ':trails')
if traced then
  local base, gone = root .. ':q:' .. traced, {}
  for _, id in ipairs(call('HRANDFIELD', base .. ':trails', TRAILS)) do
    if call('HEXISTS', base .. ':jobs', id) == 0 then gone[#gone + 1] = id end
  end
  write('HDEL', base .. ':trails', gone)
  if call('EXISTS', base .. ':trails') == 0 then call('SREM', root .. ':trails', traced) end
end

-- Queue and the rest of up to `limit` members of an index by time whose time has passed.
local function passed(index)
  local members = call('ZRANGEBYSCORE', root .. index, '-inf', now, 'LIMIT', 0, limit)
  write('ZREM', root .. index, members)
  local list = {}
  for i, member in ipairs(members) do list[i] = {string.match(member, '^([^:]+):(.*)$')} end
  return list
end

local R = call('EXISTS', root .. ':tiered', root .. ':orphans:jobs', root .. ':orphans:results') > 0 and references(root)
for _, each in ipairs(passed(':results')) do
  local base = root .. ':q:' .. each[1]
  local dropped = R and R.among(base .. ':results', {each[2]}, R.of_result)
  call('HDEL', base .. ':results', each[2])
  if R then R.release(each[1], dropped) end
end

local deltas = {}
local function drop_key(base, name, slot)
  call('HDEL', base .. ':keys', name)
  deltas[slot] = (deltas[slot] or 0) - 1
end

for _, each in ipairs(passed(':windows')) do
  local base, name = root .. ':q:' .. each[1], each[2]
  local entry = call('HGET', base .. ':keys', name)
  local until_ms, slot = unpack_record($KEY_ENTRY, entry or string.rep('\0', 20), 9)
  if until_ms > tonumber(now) and until_ms ~= KEPT then
    call('ZADD', root .. ':windows', string.format('%.0f', until_ms), each[1] .. ':' .. name)
  elseif until_ms > 0 and until_ms ~= KEPT then
    -- The name of a job that is kept is found until that goes.
    local is_kept = sub(name, 1, 1) == 'd' and call('HEXISTS', base .. ':extra', sub(entry, 1, 8)) == 1
    if not is_kept then drop_key(base, name, slot) end
  end
end

-- Up to `limit` fields of the hashes that deleted queues have left, by the kind of hash: {queue, field, value}.
local function orphans(kind, limit)
  local index, list = root .. ':orphans:' .. kind, {}
  for _, name in ipairs(call('SRANDMEMBER', index, limit)) do
    local wanted, key = limit - #list, root .. ':orphan:' .. name
    if wanted <= 0 then break end
    local queue, found, fields = string.match(name, '^([^:]+):'), call('HRANDFIELD', key, wanted, 'WITHVALUES'), {}
    for i = 1, #found, 2 do
      list[#list + 1] = {queue, found[i], found[i + 1]}
      fields[#fields + 1] = found[i]
    end
    write('HDEL', key, fields)
    if #fields < wanted then call('SREM', index, name) end
  end
  return list
end

for _, each in ipairs(orphans('keys', limit)) do
  local _, slot = unpack_record($KEY_ENTRY, each[3], 9)
  deltas[slot] = (deltas[slot] or 0) - 1
end
count_slots(root, deltas)
local freed, left_chains, left_behind = {}, {}, orphans('extra', limit)
if #left_behind > 0 then
  answer[#answer + 1] = ''
  answer[#answer + 1] = #left_behind
end
for _, each in ipairs(left_behind) do
  local e = extra_of(each[3])
  if e.serialize ~= '' and not is_flagged(e.flags, HISTORY) then
    local head = call('HGET', root .. ':heads', e.serialize)
    local left = leave_chain(root, e.serialize, head, {member_of(each[1], each[2], e.priority)}, tonumber(now), freed)
    left_chains[e.slot] = (left_chains[e.slot] or 0) - left
  end
end
-- Bodies that are none may be large.
local FEW = 20
for kind, from in pairs(R and {jobs = R.of_job, results = R.of_result} or {}) do
  local left = orphans(kind, math.min(limit, FEW))
  if #left > 0 then
    answer[#answer + 1] = ''
    answer[#answer + 1] = #left
  end
  for _, each in ipairs(left) do R.drop({from(each[3])}) end
end
count_slots(root, left_chains)
notify_freed(root, tonumber(now), freed)

local below = ARGV[4]
if below ~= '' then
  local until_time = string.match(below, '^%d+')
  local old = call('ZRANGEBYSCORE', root .. ':marks', '-inf', until_time, 'LIMIT', 0, limit)
  for _, name in ipairs(old) do
    if above(below, (parts(call('HGET', root .. ':records', name)))) then
      for _, index in ipairs({':marks', ':revisions'}) do call('ZREM', root .. index, name) end
      for _, hash in ipairs({':records', ':buckets', ':fired'}) do call('HDEL', root .. hash, name) end
    end
  end
end
return answer
