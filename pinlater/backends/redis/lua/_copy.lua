-- The descriptor of a job.
local function named(queue, shard, priority, id)
  return queue .. ':s' .. shard .. ':p' .. priority .. ':' .. string.format('%.0f', (unpack_record($ID, id)))
end

-- The keys, group and tags of a job that is copied, where it has any.
local function keys_of(base, id)
  local record = redis.call('HGET', base .. ':extra', id)
  local e = record and extra_of(record)
  if not e then return nil end
  e.tags = is_flagged(e.flags, TAGGED) and redis.call('HGET', base .. ':tagged', id)
  if e.dedupe == '' and e.serialize == '' and e.group == '' and not e.tags then return nil end
  e.timeout, e.expires, e.send, e.by, e.rest = 0, 0, '', '', ''
  return e
end

-- Store a copy of a job as a new pending one of another queue, to run now; returns its descriptor.
-- `value` is what the original has in `jobs`: the copy has its body, and its head but for the time, attempts and status.
-- A reference to a body is shared by then. `lowest` is the lowest id that may be given. `e` is what the original has of keys and tags, or nil: of a dead letter keys are
-- to show alone, else its dedupe key must be free.
local function copy(root, shard, queue, value, attempts, status, now, lowest, origin, origin_attempts, e)
  local base, head = root .. ':q:' .. queue, {unpack_record(HEAD, value)}
  local priority, body = head[3] % TIERED, sub(value, $HEAD_BYTES + 1 + head[4])
  head[1], head[2], head[4] = tonumber(now), attempts, #status
  local number = math.max((tonumber(redis.call('GET', root .. ':last')) or 0) + 1, lowest)
  local id = pack($ID, number)
  redis.call('SET', root .. ':last', string.format('%.0f', number))
  local state = 0
  if e then
    if origin_attempts == '' then
      e.now, e.flags = tonumber(now), 0
      if not come_alive(root, queue, id, e) then state = WAITING end
    else
      e.flags = HISTORY
    end
    if e.tags then
      local tagged, entries = {}, {}
      note_tags(tagged, entries, id, priority, e.tags)
      write_tags(base, tagged, entries)
      e.flags = e.flags + TAGGED
    end
    if e.group ~= '' then
      e.flags = e.flags + GROUPED
      lines_of(base).mark(root, queue)
    end
    redis.call('HSET', base .. ':extra', id, pack_extra(e))
  end
  redis.call('ZADD', base .. ':s:' .. state .. ':' .. priority, now, id)
  redis.call('HSET', base .. ':jobs', id, pack(HEAD, unpack(head, 1, #head - 1)) .. status .. body)
  link(base, id, origin, origin_attempts, '')
  if head[3] >= TIERED then references(root).hold(queue, 1) end
  if state == 0 then notify(base, tonumber(now), {now}) end
  return named(queue, shard, priority, id)
end
