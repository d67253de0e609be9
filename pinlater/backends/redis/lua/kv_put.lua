-- Write or remove an entry. The first write removes, and removing is allowed in a Redis out of memory.
-- KEYS     1 ROOT
-- ARGV     1 namespace   2 name   3 body   4 expires at   5 now   6 expected version, or ''   7 how many are kept
-- RETURNS  the version, 0 where another one was expected
-- BOUND    SOME expired entries and SOME of those beyond what is kept
local SOME = 1000
local entries, until_key = KEYS[1] .. ':notes:' .. ARGV[1], KEYS[1] .. ':until:' .. ARGV[1]
local name, expires, now = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local version, known = 0, redis.call('HGET', entries, name)
if known and tonumber(redis.call('ZSCORE', until_key, name)) > now then version = struct.unpack('>I8', known) end
if ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version then return 0 end
version = version + 1

local function remove(names)
  if #names == 0 then return end
  redis.call('ZREM', until_key, unpack(names))
  redis.call('HDEL', entries, unpack(names))
end

remove({name})
remove(redis.call('ZRANGEBYSCORE', until_key, '-inf', ARGV[5], 'LIMIT', 0, SOME))
if expires > now then
  redis.call('HSET', entries, name, struct.pack('>I8', version) .. ARGV[3])
  redis.call('ZADD', until_key, ARGV[4], name)
  local beyond = redis.call('ZCARD', until_key) - tonumber(ARGV[7])
  if beyond > 0 then remove(redis.call('ZRANGE', until_key, 0, math.min(beyond, SOME) - 1)) end
end
return version
