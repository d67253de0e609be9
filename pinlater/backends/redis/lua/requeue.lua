-- Jobs back to PENDING where the claim matches, with all attempts; those that are to stop end instead.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   then per job: priority, id, claim descriptor
-- RETURNS  how many
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include chain
--#include ends
--#include stop
local base, call, times, count, again = KEYS[2], redis.call, {}, 0, {}
local queue, now = ARGV[1], tonumber(ARGV[2])
local any_extra, ends = apart(base), new_ends(KEYS[1], now)
for at = 3, #ARGV, 3 do
  local priority, id = ARGV[at], ARGV[at + 1]
  local run_after = call('ZSCORE', base .. ':s:1:' .. priority, id)
  local claim = run_after and call('HGET', base .. ':claims', id)
  if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] then
    local remaining, allowed, crashes, status = mutable(call('HGET', base .. ':changed', id), claim)
    call('ZREM', base .. ':s:1:' .. priority, id)
    call('ZREM', base .. ':expiry', id)
    local new, extra = pack(CHANGED, now, remaining, allowed, crashes) .. status, any_extra and call('HGET', base .. ':extra', id)
    count = count + 1
    if not stop(ends, base, queue, priority, id, extra, run_after, new) then
      call('HDEL', base .. ':claims', id)
      call('ZADD', base .. ':s:0:' .. priority, run_after, id)
      call('HSET', base .. ':changed', id, new)
      times[#times + 1] = run_after
      if extra then
        again[#again + 1] = id
        if is_flagged(byte(extra, $EXTRA_FLAGS_AT), GROUPED) then lines_of(base).give_back(priority, extra) end
      end
    end
  end
end
notify(base, now, times)
expire_again(KEYS[1], base, queue, again)
finish_ends(ends)
return count
