-- The descriptor of a job.
local function named(queue, shard, priority, id)
  return queue .. ':s' .. shard .. ':p' .. priority .. ':' .. string.format('%.0f', (unpack_record($ID, id)))
end

-- Store a copy of a job as a new pending one of another queue, to run now; returns its descriptor.
-- `value` is what the original has in `jobs`: the copy has its body, and its head but for the time, attempts and status.
-- `lowest` is the lowest id that may be given.
local function copy(root, shard, queue, value, attempts, status, now, lowest, origin, origin_attempts)
  local base, head = root .. ':q:' .. queue, {unpack_record(HEAD, value)}
  local priority, body = head[3], sub(value, $HEAD_BYTES + 1 + head[4])
  head[1], head[2], head[4] = tonumber(now), attempts, #status
  local number = math.max((tonumber(redis.call('GET', root .. ':last')) or 0) + 1, lowest)
  local id = pack($ID, number)
  redis.call('SET', root .. ':last', string.format('%.0f', number))
  redis.call('ZADD', base .. ':s:0:' .. priority, now, id)
  redis.call('HSET', base .. ':jobs', id, pack(HEAD, unpack(head, 1, #head - 1)) .. status .. body)
  link(base, id, origin, origin_attempts, '')
  notify(base, tonumber(now), {now})
  return named(queue, shard, priority, id)
end
