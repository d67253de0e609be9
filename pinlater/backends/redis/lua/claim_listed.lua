-- Hand out the jobs given, where they are eligible, in order. The first write removes.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 bounds (_claim.lua)   4 claimed_at   5 time-out   6 1 where a job's own time-out
--          counts before that, else 0   7 descriptor   8 most bytes of bodies   then per job: priority, id
-- RETURNS  per job {run_after, value, changed or '', expiry, its group where the queue has groups} where it was handed out,
--          else 1 not due, 2 behind another one, 3 in progress, 4 ended, 5 not found, 6 no room in the quota; fewer than
--          the jobs where the bodies came to the most; nil: no such queue
-- BOUND    the jobs given; the most bytes and one body
--#include many
--#include layout
--#include size
--#include extra
--#include references
--#include lines
--#include revise
local NOT_DUE, BEHIND, IN_PROGRESS, ENDED, NOT_FOUND, LIMITED = 1, 2, 3, 4, 5, 6
local root, base, queue, now, call = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), redis.call
local claimed_at, timeout, room = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[8])
local queue_entry = call('HGET', root .. ':queues', queue)
if not queue_entry then return false end
local has_groups = sub(queue_entry, -1) == '$GROUPS_MARK'
local any_extra, earliest, any, answer = call('EXISTS', base .. ':extra') == 1, math.huge, false, {}

local free = math.huge
if sub(ARGV[3], 1, 1) == '1' then
  local quota = tonumber(string.match(call('HGET', root .. ':shares', queue) or '0', '^%d+'))
  free = quota - call('ZCARD', base .. ':expiry')
end

local function code_of(priority, id)
  for state, code in pairs({[1] = IN_PROGRESS, [2] = ENDED, [3] = ENDED, [CANCELLED] = ENDED, [REPLAYED] = ENDED}) do
    if call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then return code end
  end
  return NOT_FOUND
end

-- Why a job that is PENDING cannot be handed out, if anything keeps it. What was set aside (_sweep.lua) has expired.
local function hindrance(state, run_after, expires, extra)
  if expires > 0 and expires <= now then return ENDED end
  if state == WAITING then return BEHIND end
  if tonumber(run_after) > now then return NOT_DUE end
  return (free <= 0 or has_groups and lines_of(base).is_paused(extra, now)) and LIMITED or nil
end

local function hand_out(state, priority, id, run_after, value, attempts, status_bytes, lasts, group)
  local changed, expiry = call('HGET', base .. ':changed', id), string.format('%.0f', claimed_at + lasts)
  if state == IN_LINE then lines_of(base).leave(priority, {id}) else call('ZREM', base .. ':s:0:' .. priority, id) end
  call('ZADD', base .. ':s:1:' .. priority, run_after, id)
  call('ZADD', base .. ':expiry', expiry, id)
  call('HSET', base .. ':claims', id, pack(CLAIM, claimed_at, lasts, attempts, tonumber(priority)) .. ARGV[7])
  if status_bytes > 0 and not changed then
    local status = sub(value, $HEAD_BYTES + 1, $HEAD_BYTES + status_bytes)
    call('HSET', base .. ':changed', id, pack(CHANGED, now, attempts, attempts, 0) .. status)
  end
  earliest, free, any = math.min(earliest, claimed_at + lasts), free - 1, true
  return {run_after, value, changed or '', expiry, group}
end

for at = 9, #ARGV, 2 do
  local priority, id = ARGV[at], ARGV[at + 1]
  local state, run_after = pending_state(base, priority, id)
  local own, expires = 0, 0
  local extra = state and any_extra and call('HGET', base .. ':extra', id)
  if extra then own, expires = unpack_record($EXTRA, extra) end
  local code = state and hindrance(state, run_after, expires, extra) or not state and code_of(priority, id)
  if not code then
    local value = call('HGET', base .. ':jobs', id)
    local _, attempts, _, status_bytes = unpack_record(HEAD, value)
    room = room - body_bytes(value)
    if room < 0 and any then break end
    local lasts = ARGV[6] == '1' and own > 0 and own or timeout
    local group = has_groups and lines_of(base).group_in(extra) or nil
    code = hand_out(state, priority, id, run_after, value, attempts, status_bytes, lasts, group)
  end
  answer[#answer + 1] = code
end
if any then call('ZADD', root .. ':claimed', 'LT', string.format('%.0f', earliest), queue) end
return answer
