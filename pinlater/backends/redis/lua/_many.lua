-- One redis.call with many members: `unpack` and the C stack of Lua hold fewer than 8,000 values.
local CHUNK = 6000  -- even, so that pairs stay together
local unpack = unpack

local function write(command, key, values)
  local n = #values
  if n == 0 then return end
  if n <= CHUNK then
    redis.call(command, key, unpack(values, 1, n))
    return
  end
  for first = 1, n, CHUNK do
    redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, n)))
  end
end

-- HMGET or ZMSCORE: one answer per member, in order.
local function read(command, key, members)
  local n = #members
  if n == 0 then return {} end
  if n <= CHUNK then return redis.call(command, key, unpack(members, 1, n)) end
  local all = {}
  for first = 1, n, CHUNK do
    local part = redis.call(command, key, unpack(members, first, math.min(first + CHUNK - 1, n)))
    for i = 1, #part do all[first + i - 1] = part[i] end
  end
  return all
end

-- ZADD of score and member in turn. Redis keeps a sorted set as a list until it has 129 members, and walks over it for
-- each that comes or goes: with a hundred that is 40 % of what a job costs. One long member makes it a tree for good.
local FEW, LISTED = 20, 128
local function add(key, members)
  local n, is_list = #members / 2, false
  if n > 1 then
    local had = redis.call('ZCARD', key)
    is_list = had + n > FEW and had <= (n > FEW and LISTED or FEW)
  end
  local long = is_list and string.rep('-', 65)
  if is_list then redis.call('ZADD', key, 0, long) end
  write('ZADD', key, members)
  if is_list then redis.call('ZREM', key, long) end
end
