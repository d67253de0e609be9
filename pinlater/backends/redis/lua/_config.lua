-- Configuration entries: what all shards should agree on, by name. A packed entry is its version and the version of its
-- last deletion, each behind a byte of length, then its text.

local function packed(version, deleted, text)
  return struct.pack('Bc0Bc0', #version, version, #deleted, deleted) .. text
end

-- Version, deleted version and text of a packed entry; empty where there is none.
local function parts(entry)
  if not entry then return '', '', '' end
  local version, deleted, at = struct.unpack('Bc0Bc0', entry)
  return version, deleted, string.sub(entry, at)
end

-- Lua compares text by the locale, and versions are compared byte by byte.
local function above(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- Whether the homes of keys are newer here than those by which a call chose this shard; '': it does not say.
local function homes_changed(root, version)
  return version ~= '' and above((parts(redis.call('HGET', root .. ':records', '@homes'))), version)
end

-- Put an entry at the end of the row. It never falls behind the time in microseconds, so that after a loss of data no
-- reader has seen a later one. The first write removes, and removing is allowed in a Redis out of memory.
local function put(root, name, entry, micros)
  redis.call('ZREM', root .. ':revisions', name)
  local revision = math.max((tonumber(redis.call('GET', root .. ':revision')) or 0) + 1, micros)
  local text = string.format('%.0f', revision)
  redis.call('SET', root .. ':revision', text)
  redis.call('ZADD', root .. ':revisions', text, name)
  redis.call('HSET', root .. ':records', name, entry)
end
