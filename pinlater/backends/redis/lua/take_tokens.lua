-- Take whole tokens from a queue's bucket, or give some back; the arithmetic is that of token_bucket.py.
-- KEYS     1 ROOT
-- ARGV     1 queue   2 wanted   3 per second   4 capacity   5 now
-- RETURNS  {granted, milliseconds until there is one more}
-- BOUND    constant
local key, queue = KEYS[1] .. ':buckets', ARGV[1]
local per_second, capacity, now = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local tokens, at = 1, now
local level = redis.call('HGET', key, queue)
if level then
  local tokens_text, at_text = string.match(level, '^(%S+) (%S+)$')
  tokens, at = tonumber(tokens_text), tonumber(at_text)
  if at - now >= 10000 then at = now end
end
tokens = math.min(capacity, tokens + math.max(0, now - at) * per_second / 1000)
local granted = math.min(tonumber(ARGV[2]), math.floor(tokens + 1e-9))
tokens = math.max(0, math.min(capacity, tokens - granted))
redis.call('HDEL', key, queue)  -- first, since a Redis out of memory refuses to begin with the other
redis.call('HSET', key, queue, string.format('%.17g %.0f', tokens, math.max(at, now)))
local wait = 0
if tokens + 1e-9 < 1 and per_second > 0 then wait = math.ceil((1 - tokens) * 1000 / per_second - 1e-6) end
return {math.max(0, granted), wait}
