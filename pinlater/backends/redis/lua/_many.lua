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
