-- Chains: the jobs of a serialize key, in whichever queues. ROOT:heads has what is first of each key; those behind it
-- are in a zset of their own, by place. A place is an id that no job has, or the job's own.
local NO_ONE, SOME, BARRIER = 0, 1, 2  -- behind the head: nobody; others; the head is no job, but another shard

local function chain_key(root, key) return root .. ':chain:' .. key end

-- Since when, what is behind, and the job (or the shard) of a head.
local function head_of(head)
  local since, behind = unpack_record($CHAIN_HEAD, head)
  return since, behind, sub(head, 10)
end

local function pack_head(since, behind, member) return pack($CHAIN_HEAD, since, behind) .. member end

-- Keep count of those that wait.
local function count_waiting(root, key, since)
  local waiting = redis.call('ZCARD', chain_key(root, key))
  if waiting == 0 then
    redis.call('ZREM', root .. ':waiting', key)
    redis.call('ZREM', root .. ':since', key)
  else
    redis.call('ZADD', root .. ':waiting', waiting, key)
    redis.call('ZADD', root .. ':since', string.format('%.0f', since), key)
  end
  return waiting
end

-- A job behind the head of its key, which is as given; returns the head as it is now.
local function wait_behind(root, key, head, place, member)
  local since, behind, first = head_of(head)
  redis.call('ZADD', chain_key(root, key), string.format('%.0f', place), member)
  count_waiting(root, key, since)
  if behind ~= NO_ONE then return head end
  head = pack_head(since, SOME, first)
  redis.call('HSET', root .. ':heads', key, head)
  return head
end

-- A job that waited is eligible when its time comes. `freed` gets its run_after by queue.
local function free(root, queue, priority, id, now, freed)
  local call, base = redis.call, root .. ':q:' .. queue
  local run_after = call('ZSCORE', base .. ':s:4:' .. priority, id)
  if not run_after then return end
  local e = extra_of(call('HGET', base .. ':extra', id))
  if e.expires > 0 and e.expires <= now then return end  -- it ends in `expire_jobs`
  call('ZREM', base .. ':s:4:' .. priority, id)
  call('ZADD', base .. ':s:0:' .. priority, run_after, id)
  local of_queue = freed[queue]
  if not of_queue then
    of_queue = {}
    freed[queue] = of_queue
  end
  of_queue[#of_queue + 1] = run_after
end

-- The one that is next of a key whose head is gone becomes the head, and is freed. Where its queue is gone it is the head all the same, until `prune` takes it away.
local function free_next(root, key, now, freed)
  local call = redis.call
  local member = call('ZPOPMIN', chain_key(root, key))[1]
  local waiting = count_waiting(root, key, now)
  if not member then
    call('HDEL', root .. ':heads', key)
    return
  end
  call('HSET', root .. ':heads', key, pack_head(now, waiting > 0 and SOME or NO_ONE, member))
  free(root, sub(member, 10), byte(member, 9), sub(member, 1, 8), now, freed)
end

local function notify_freed(root, now, freed)
  for queue, times in pairs(freed) do notify(root .. ':q:' .. queue, now, times) end
end

-- `members` leave the chain of a key; returns how many of them were in it.
local function leave_chain(root, key, head, members, now, freed)
  if not head then return 0 end
  local since, behind, first = head_of(head)
  local is_first, others, left = false, {}, 0
  for _, member in ipairs(members) do
    if behind ~= BARRIER and member == first then is_first = true else others[#others + 1] = member end
  end
  if behind ~= NO_ONE then
    for i = 1, #others, CHUNK do
      left = left + redis.call('ZREM', chain_key(root, key), unpack(others, i, math.min(i + CHUNK - 1, #others)))
    end
  end
  if is_first then
    if behind == NO_ONE then redis.call('HDEL', root .. ':heads', key) else free_next(root, key, now, freed) end
    return left + 1
  end
  if left > 0 and count_waiting(root, key, since) == 0 then
    if behind == BARRIER then
      redis.call('HDEL', root .. ':heads', key)
      redis.call('HDEL', root .. ':barriers', key)
    else
      redis.call('HSET', root .. ':heads', key, pack_head(since, NO_ONE, first))
    end
  end
  return left
end
