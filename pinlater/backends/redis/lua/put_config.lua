-- Take each entry that is newer than the one here, in order; queues come and go with theirs.
-- KEYS     1 ROOT
-- ARGV     1 now   2 store id   3 the lowest possible priority (the highest number)
--          then per entry: name, version, text, deleted version or ''
-- RETURNS  one character per entry: 1 taken, 0 not newer; nil where the store is not (or no longer) this one
-- BOUND    the entries given; for each queue that goes, the number of possible priorities
--#include config
local root, call = KEYS[1], redis.call
if call('HGET', root, 'store') ~= ARGV[2] then return false end

-- What is to be undone one by one when its queue is gone: `prune` does, in slices.
local function set_aside(base, queue, kind)
  if call('EXISTS', base .. ':' .. kind) == 0 then return end
  local name = queue .. ':' .. kind .. ':' .. call('INCR', root .. ':orphaned')
  call('RENAME', base .. ':' .. kind, root .. ':orphan:' .. name)
  call('SADD', root .. ':orphans:' .. kind, name)
end

-- Delete a queue with all that it has; Redis frees the memory in the background.
local function drop(queue)
  if call('HDEL', root .. ':queues', queue) == 0 then return end
  for _, index in ipairs({':claimed', ':ended:2', ':ended:3', ':dead', ':until'}) do call('ZREM', root .. index, queue) end
  for _, hash in ipairs({':shares', ':buckets'}) do call('HDEL', root .. hash, queue) end
  call('SREM', root .. ':trails', queue)
  local base = root .. ':q:' .. queue
  set_aside(base, queue, 'extra')
  set_aside(base, queue, 'keys')
  if call('DEL', base .. ':tiered') == 1 then  -- references to bodies, which are to be dropped
    set_aside(base, queue, 'jobs')
    set_aside(base, queue, 'results')
    call('SREM', root .. ':tiered', queue)
  end
  local watched = call('ZRANGE', base .. ':watched', 0, -1)
  if #watched > 0 then redis.pcall('PUBLISH', root .. ':ends', queue .. ':' .. table.concat(watched)) end
  local keys = {
    base .. ':jobs', base .. ':changed', base .. ':claims', base .. ':links', base .. ':expiry', base .. ':ended:2',
    base .. ':ended:3', base .. ':dead', base .. ':undelivered', base .. ':trails',
    base .. ':until', base .. ':expired', base .. ':watched', base .. ':results', base .. ':tagged', base .. ':tags',
    base .. ':turn',
  }
  for priority = 1, tonumber(ARGV[3]) do
    for state = 0, 8 do keys[#keys + 1] = base .. ':s:' .. state .. ':' .. priority end
    for _, index in ipairs({':lines:', ':turns:', ':ahead:'}) do keys[#keys + 1] = base .. index .. priority end
  end
  call('UNLINK', unpack(keys))
end

local micros, taken = tonumber(ARGV[1]) * 1000, {}
for at = 4, #ARGV, 4 do
  local name, version, deleted = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  local own = parts(call('HGET', root .. ':records', name))
  local is_newer = above(version, own)
  if is_newer then
    put(root, name, packed(version, deleted, ARGV[at + 2]), micros)
    if version == deleted then
      call('ZADD', root .. ':marks', string.match(version, '^%d+'), name)
    else
      call('ZREM', root .. ':marks', name)
    end
    if not string.find(name, '@', 1, true) then
      if above(deleted, own) then drop(name) end
      if version ~= deleted then call('HSETNX', root .. ':queues', name, ARGV[1]) end
    end
  end
  taken[#taken + 1] = is_newer and '1' or '0'
end
return table.concat(taken)
