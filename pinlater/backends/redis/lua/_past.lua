-- Entries of a hash go whose time in a sorted set has come, up to PAST_AT_ONCE.
local PAST_AT_ONCE = 500

local function forget_past(hash, times, now)
  local names = redis.call('ZRANGEBYSCORE', times, '-inf', now, 'LIMIT', 0, PAST_AT_ONCE)
  write('HDEL', hash, names)
  write('ZREM', times, names)
end
