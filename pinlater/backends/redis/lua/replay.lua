-- Send dead letters back to the queues they came from. The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest id that may be given: now in microseconds   4 shard id
--          5 attempts, or '' for as many as the origin was allowed   6 version of the homes, or ''
--          7 1: jobs whose letters go back become REPLAYED, 0: they do not   then per job: priority, id
-- RETURNS  per job its new descriptor, or '', -1: the homes have changed; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include config
--#include notify
--#include extra
--#include lines
--#include references
--#include chain
--#include keys
--#include ends
--#include forget
--#include links
--#include letters
--#include tags
--#include copy
local root, base, queue, now, call = KEYS[1], KEYS[2], ARGV[1], ARGV[2], redis.call
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
if homes_changed(root, ARGV[6]) then return -1 end

-- A job that failed, and is dealt with: it stays in `ended:3`.
local function mark_replayed(base, priority, id, new)
  local run_after = call('ZSCORE', base .. ':s:3:' .. priority, id)
  call('ZREM', base .. ':s:3:' .. priority, id)
  call('ZADD', base .. ':s:' .. REPLAYED .. ':' .. priority, run_after, id)
  local came_from, came_with = linked(base, id)
  link(base, id, came_from, came_with, new)
  call('HSET', base .. ':changed', id, pack('>I8', tonumber(now)) .. sub(call('HGET', base .. ':changed', id), 9))
end

local function replay(priority, id)
  local origin, attempts = linked(base, id)
  if attempts == '' then return '' end
  local home = string.match(origin, '^[^:]+')
  if call('HEXISTS', root .. ':queues', home) == 0 then return '' end
  local e = keys_of(base, id)
  if e and taken_by(root .. ':q:' .. home, e, '') then return '' end
  local state
  for _, each in ipairs({0, 3, CANCELLED}) do
    if not state and call('ZREM', base .. ':s:' .. each .. ':' .. priority, id) == 1 then state = each end
  end
  if not state and lines_of(base).leave(priority, {id})[1] then state = IN_LINE end
  if not state then return '' end
  local value, changed = call('HGET', base .. ':jobs', id), call('HGET', base .. ':changed', id)
  local _, _, _, status_bytes = unpack_record(HEAD, value)
  local status = changed and sub(changed, CHANGED_STATUS_AT) or sub(value, $HEAD_BYTES + 1, $HEAD_BYTES + status_bytes)
  local allowed = tonumber(ARGV[5] ~= '' and ARGV[5] or attempts)
  local letter = named(queue, ARGV[4], priority, id)
  if byte(value, $PRIORITY_AT) >= TIERED then  -- first: the letter lets go of it
    local R = references(root)
    R.share(R.of_job(value))
  end
  forget(root, queue, state, {id}, now)
  local new = copy(root, ARGV[4], home, value, allowed, status, now, tonumber(ARGV[3]), letter, '', e)
  local its_base, its_priority, its_id = nil, nil, nil
  if ARGV[7] == '1' then its_base, its_priority, its_id = original_of(root, ARGV[4], origin, letter) end
  if its_base then mark_replayed(its_base, its_priority, its_id, new) end
  return new
end

local descriptors = {}
for at = 8, #ARGV, 2 do descriptors[#descriptors + 1] = replay(ARGV[at], ARGV[at + 1]) end
return descriptors
