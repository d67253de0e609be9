-- Send dead letters back to the queues they came from. The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest id that may be given: now in microseconds   4 shard id
--          5 attempts, or '' for as many as the origin was allowed   6 version of the homes, or ''
--          then per job: priority, id
-- RETURNS  per job its new descriptor, or '', -1: the homes have changed; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include config
--#include notify
--#include extra
--#include references
--#include chain
--#include keys
--#include ends
--#include forget
--#include links
--#include copy
local root, base, queue, now, call = KEYS[1], KEYS[2], ARGV[1], ARGV[2], redis.call
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
if homes_changed(root, ARGV[6]) then return -1 end

local function replay(priority, id)
  local origin, attempts = linked(base, id)
  if attempts == '' then return '' end
  local home = string.match(origin, '^[^:]+')
  if call('HEXISTS', root .. ':queues', home) == 0 then return '' end
  local e = keys_of(base, id)
  if e and taken_by(root .. ':q:' .. home, e, '') then return '' end
  local state
  if call('ZREM', base .. ':s:0:' .. priority, id) == 1 then
    state = 0
  elseif call('ZREM', base .. ':s:3:' .. priority, id) == 1 then
    state = 3
  else
    return ''
  end
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
  return copy(root, ARGV[4], home, value, allowed, status, now, tonumber(ARGV[3]), letter, '', e)
end

local descriptors = {}
for at = 7, #ARGV, 2 do descriptors[#descriptors + 1] = replay(ARGV[at], ARGV[at + 1]) end
return descriptors
