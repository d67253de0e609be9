-- Heartbeats, in order. The first write removes, so that heartbeats work in a Redis out of memory.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   then per heartbeat: priority, id, source, claim descriptor or '', flags (1 body, 2 attempts,
--          4 to PENDING, 8 the body is a reference), run_after, attempts, status to put in front, body, the latest expiry that run_after may give
-- RETURNS  one character per heartbeat: 1 done, 0 no match
-- BOUND    the heartbeats given
--#include many
--#include layout
--#include renew
--#include notify
--#include extra
--#include references
--#include chain
--#include ends
--#include stop
local base, now = KEYS[2], tonumber(ARGV[2])
local call = redis.call
local BEFORE_SOURCE = '^[^:]*:[^:]*:[^:]*:[^:]*:(.*)$'

-- The claim and run_after's zset of a job that is in progress under the claim or source given, or nil.
local function held(priority, id, source, descriptor)
  local running = base .. ':s:1:' .. priority
  if not call('ZSCORE', running, id) then return nil end
  local claim = call('HGET', base .. ':claims', id)
  local own = sub(claim, DESCRIPTOR_AT)
  if descriptor ~= '' then
    if own ~= descriptor then return nil end
  elseif string.match(own, BEFORE_SOURCE) ~= source then
    return nil
  end
  return claim, running
end

local any_extra, ends, again = apart(base), new_ends(KEYS[1], now), {}
local outcome, earliest, times = {}, nil, {}
for at = 3, #ARGV, 10 do
  local priority, id, flags = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4])
  local claim, running = held(priority, id, ARGV[at + 2], ARGV[at + 3])
  outcome[#outcome + 1] = claim and '1' or '0'
  if claim then
    local before = call('HGET', base .. ':changed', id)
    local remaining, allowed, crashes, status = mutable(before, claim)
    local _, timeout = unpack_record(CLAIM, claim)
    local later = math.min(tonumber(ARGV[at + 5]) + timeout, tonumber(ARGV[at + 9]))
    local expiry, updated = renewal(base, id, claim, before, now, math.max(now + timeout, later))
    if flags % 8 >= 4 then updated = now end
    if flags % 4 >= 2 then remaining, allowed = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 6]) end
    call('ZREM', base .. ':expiry', id)
    local changed = pack(CHANGED, updated, remaining, allowed, crashes) .. cut(ARGV[at + 7] .. status)
    call('HSET', base .. ':changed', id, changed)
    if flags % 2 == 1 then
      references(KEYS[1]).set_body(ARGV[1], id, call('HGET', base .. ':jobs', id), ARGV[at + 8], flags >= 8)
    end
    if flags % 8 >= 4 then
      local extra = any_extra and call('HGET', base .. ':extra', id)
      call('ZREM', running, id)
      if not stop(ends, base, ARGV[1], priority, id, extra, ARGV[at + 5], changed) then
        call('HDEL', base .. ':claims', id)
        call('ZADD', base .. ':s:0:' .. priority, ARGV[at + 5], id)
        times[#times + 1] = ARGV[at + 5]
        if extra then again[#again + 1] = id end
      end
    else
      call('ZADD', running, ARGV[at + 5], id)
      call('ZADD', base .. ':expiry', string.format('%.0f', expiry), id)
      earliest = math.min(earliest or math.huge, expiry)
    end
  end
end
-- Earlier than the claim's own only where a clock was set back.
if earliest then call('ZADD', KEYS[1] .. ':claimed', 'LT', string.format('%.0f', earliest), ARGV[1]) end
notify(base, now, times)
expire_again(KEYS[1], base, ARGV[1], again)
finish_ends(ends)
return table.concat(outcome)
