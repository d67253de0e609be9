-- Permits of groups, at the home of a queue (permit_store.py).
-- BASE:permits         by job (PermitKey.holder) PERMIT, group, claim descriptor; BASE:permits:checks when it is checked
-- BASE:permits:counts  how many permits each group has that has any
-- BASE:permits:groups  what a group has beside: level of its bucket (_bucket.lua), when that is full, the shards that wait,
--                      in order, with commas between; '' for what it has not; semicolons stand between
-- BASE:permits:past    until when that of a group is of use: its bucket is full then, and no shard need wait any more
local function group_and_claim(record)
  local _, size = unpack_record($PERMIT, record)
  local last = $PERMIT_BYTES + size
  return sub(record, $PERMIT_BYTES + 1, last), sub(record, last + 1)
end

-- These permits go, by their jobs and groups; a job may come twice. How many of each group went.
local function take_back(base, holders, groups)
  local counts, gone, is_gone = {}, {}, {}
  for i, holder in ipairs(holders) do
    if not is_gone[holder] then
      is_gone[holder], gone[#gone + 1] = true, holder
      counts[groups[i]] = (counts[groups[i]] or 0) + 1
    end
  end
  write('HDEL', base .. ':permits', gone)
  write('ZREM', base .. ':permits:checks', gone)
  local key = base .. ':permits:counts'
  for group, count in pairs(counts) do
    if redis.call('HINCRBY', key, group, -count) <= 0 then redis.call('HDEL', key, group) end
  end
  return counts
end

local function count_of(base, group) return tonumber(redis.call('HGET', base .. ':permits:counts', group) or 0) end

-- What a group has beside its permits: level, when that is full, the shards.
local function beside(base, group)
  local text = redis.call('HGET', base .. ':permits:groups', group) or ';0;'
  local level, full_at, shards = string.match(text, '^(.-);(.-);(.*)$')
  local names = {}
  for shard in string.gmatch(shards, '[^,]+') do names[#names + 1] = shard end
  return level, full_at, names
end

-- `until_ms`: so long the shards wait at least, and as long as was said before. The first write removes.
local function put_beside(base, group, level, full_at, shards, until_ms)
  local key, past, of_use = base .. ':permits:groups', base .. ':permits:past', tonumber(full_at)
  if #shards > 0 then
    of_use = math.max(of_use, tonumber(until_ms or 0), tonumber(redis.call('ZSCORE', past, group) or 0))
  end
  redis.call('HDEL', key, group)
  redis.call('ZREM', past, group)
  if level == '' and #shards == 0 then return end
  redis.call('HSET', key, group, table.concat({level, full_at, table.concat(shards, ',')}, ';'))
  redis.call('ZADD', past, string.format('%.0f', of_use), group)
end
