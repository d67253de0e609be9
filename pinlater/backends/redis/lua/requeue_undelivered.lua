-- Jobs back to PENDING with all attempts, whose hand-out nobody received: where the claim matches and still expires when
-- it did at first. Not of a job to which that has happened so often in a row; a row ends when its attempts or run_after
-- change, which whatever ends or renews a claim that was received does. So nothing else need write or read the count.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 how often in a row   then per job: priority, id, claim descriptor, expiry
-- RETURNS  how many
-- BOUND    the jobs given, and PRUNED of the entries of others
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include chain
--#include ends
--#include stop
local base, queue, now, most = KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local any_extra, ends, again, count = apart(base), new_ends(KEYS[1], now), {}, 0
local call, times, counts = redis.call, {}, KEYS[2] .. ':undelivered'
local ROW = '>I4I4I8'  -- how often, and the attempts and run_after of the job meanwhile
local MANY, PRUNED = 1000, 20

for at = 4, #ARGV, 4 do
  local priority, id = ARGV[at], ARGV[at + 1]
  local run_after = call('ZSCORE', base .. ':s:1:' .. priority, id)
  local claim = run_after and call('HGET', base .. ':claims', id)
  if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2]
      and tonumber(call('ZSCORE', base .. ':expiry', id)) == tonumber(ARGV[at + 3]) then
    local remaining, allowed, crashes, status = mutable(call('HGET', base .. ':changed', id), claim)
    local row, often = call('HGET', counts, id), 0
    if row then
      local before, attempts, time = unpack_record(ROW, row)
      if attempts == remaining and time == tonumber(run_after) then often = before end
    end
    if often < most then
      call('ZREM', base .. ':s:1:' .. priority, id)
      call('ZREM', base .. ':expiry', id)
      local new, extra = pack(CHANGED, now, remaining, allowed, crashes) .. status, any_extra and call('HGET', base .. ':extra', id)
      count = count + 1
      if not stop(ends, base, queue, priority, id, extra, run_after, new) then
        call('HDEL', base .. ':claims', id)
        call('ZADD', base .. ':s:0:' .. priority, run_after, id)
        call('HSET', base .. ':changed', id, new)
        call('HSET', counts, id, pack(ROW, often + 1, remaining, tonumber(run_after)))
        times[#times + 1] = run_after
        if extra then
        again[#again + 1] = id
        if is_flagged(byte(extra, $EXTRA_FLAGS_AT), GROUPED) then lines_of(base).give_back(priority, extra) end
      end
      end
    end
  end
end
notify(base, now, times)
expire_again(KEYS[1], base, queue, again)
finish_ends(ends)

-- Acks do not look here: of many entries, some of jobs that are gone are removed now and then.
if count > 0 and call('HLEN', counts) > MANY then
  for _, id in ipairs(call('HRANDFIELD', counts, PRUNED)) do
    if call('HEXISTS', base .. ':jobs', id) == 0 then call('HDEL', counts, id) end
  end
end
return count
