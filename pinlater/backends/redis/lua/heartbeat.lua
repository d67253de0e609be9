-- Signs of life, in order. The first write removes, so that they work in a Redis out of memory.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   then per claim: priority, id, claim descriptor, progress (PROGRESS and its text) or '', which
--          parts of it are given (1 fraction, 2 text, 4 log lines, which follow: bytes of the progress, that, the lines)
-- RETURNS  per claim 0 where it is lost, 1, or who asked the job to stop
-- BOUND    the claims given
--#include many
--#include layout
--#include renew
--#include extra
--#include trails
local base, now, call = KEYS[2], tonumber(ARGV[2]), redis.call
local any_extra, answer, earliest = apart(base), {}, nil

-- What is not given stays.
local function progress(before, given, parts)
  local fraction, at = unpack_record($PROGRESS, given)
  local text = sub(given, $PROGRESS_BYTES + 1)
  if before ~= '' then
    local old = unpack_record($PROGRESS, before)
    if parts % 2 == 0 then fraction = old end
    if parts < 2 then text = sub(before, $PROGRESS_BYTES + 1) end
  end
  return pack($PROGRESS, fraction, at) .. text
end

for at = 3, #ARGV, 5 do
  local priority, id, parts, made, lines = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4]), ARGV[at + 3], nil
  if parts >= 4 then
    local bytes = unpack_record('>I4', made)
    parts, made, lines = parts - 4, sub(made, 5, 4 + bytes), sub(made, 5 + bytes)
  end
  local claim = call('ZSCORE', base .. ':s:1:' .. priority, id) and call('HGET', base .. ':claims', id)
  if not claim or sub(claim, DESCRIPTOR_AT) ~= ARGV[at + 2] then
    answer[#answer + 1] = 0
  else
    local changed = call('HGET', base .. ':changed', id)
    local remaining, allowed, crashes, status = mutable(changed, claim)
    local _, timeout = unpack_record(CLAIM, claim)
    local expiry, updated = renewal(base, id, claim, changed, now, now + timeout)
    call('ZREM', base .. ':expiry', id)
    call('ZADD', base .. ':expiry', string.format('%.0f', expiry), id)
    call('HSET', base .. ':changed', id, pack(CHANGED, updated, remaining, allowed, crashes) .. status)
    earliest = math.min(earliest or math.huge, expiry)
    local record = (any_extra or parts > 0) and call('HGET', base .. ':extra', id)
    local e = record and extra_of(record) or plain_extra(tonumber(priority))
    if parts > 0 then
      e.rest = progress(e.rest, made, parts)
      call('HSET', base .. ':extra', id, pack_extra(e))
      any_extra = true
    end
    if lines then add_lines(KEYS[1], base, ARGV[1], id, lines) end
    answer[#answer + 1] = is_flagged(e.flags, STOP) and e.by ~= '' and e.by or 1
  end
end
if earliest then call('ZADD', KEYS[1] .. ':claimed', 'LT', string.format('%.0f', earliest), ARGV[1]) end
return answer
