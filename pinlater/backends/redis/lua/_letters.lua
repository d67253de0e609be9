-- The dead letters of jobs that failed, which are retried or whose letters go back: one failure is in one place.

-- Queue, shard, priority and id of a descriptor.
local function parts_of(descriptor)
  local queue, shard, priority, number = string.match(descriptor, '^([^:]+):s([^:]+):p(%d+):(%d+)$')
  return queue, shard, priority, number and pack($ID, tonumber(number))
end

-- What a job's letter means for a retry, by the job's descriptor of it: 'gone', 'held', or the letter, which can go.
local function letter_of(root, shard, descriptor)
  local queue, its_shard, priority, id = parts_of(descriptor)
  if its_shard ~= shard then return 'held' end
  local base = root .. ':q:' .. queue
  if redis.call('HEXISTS', base .. ':jobs', id) == 0 then return 'gone' end
  local _, _, moved_to = linked(base, id)
  if moved_to ~= '' then return 'held' end
  for _, state in ipairs({0, WAITING, IN_LINE, 3, CANCELLED}) do
    if redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then
      return {queue = queue, state = state, priority = priority, id = id}
    end
  end
  for _, state in ipairs({1, 2, REPLAYED}) do
    if redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then return 'held' end
  end
  return 'gone'  -- a job of another priority has this id
end

-- Where the origin of a letter is here, FAILED, and this is its letter: its base, priority and id.
local function original_of(root, shard, origin, letter)
  local queue, its_shard, priority, id = parts_of(origin)
  if not queue or its_shard ~= shard then return nil end
  local base = root .. ':q:' .. queue
  if not redis.call('ZSCORE', base .. ':s:3:' .. priority, id) then return nil end
  local _, _, moved_to = linked(base, id)
  if moved_to == letter then return base, priority, id end
end
