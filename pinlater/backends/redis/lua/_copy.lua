-- The descriptor of a job.
local function named(queue, shard, priority, id)
  return queue .. ':s' .. shard .. ':p' .. priority .. ':' .. string.format('%.0f', (unpack_record($ID, id)))
end

-- Store a copy of a job as a new pending one of another queue, to run now; returns its descriptor.
-- `job`: its priority, the attempts allowed, its status and its body; `lowest` is the lowest id that may be given.
local function copy(root, shard, queue, job, now, lowest, origin, origin_attempts)
  local base = root .. ':q:' .. queue
  local number = math.max((tonumber(redis.call('GET', root .. ':last')) or 0) + 1, lowest)
  local id = pack($ID, number)
  redis.call('SET', root .. ':last', string.format('%.0f', number))
  redis.call('ZADD', base .. ':s:0:' .. job.priority, now, id)
  local head = pack(HEAD, tonumber(now), job.attempts, job.priority, #job.status)
  redis.call('HSET', base .. ':jobs', id, head .. job.status .. job.body)
  link(base, id, origin, origin_attempts, '')
  notify(base, tonumber(now), {now})
  return named(queue, shard, job.priority, id)
end
