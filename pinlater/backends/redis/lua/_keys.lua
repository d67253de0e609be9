-- The keys of jobs that come alive again: entries of BASE:keys are an id (or 0), when it ends to count (0: its job is
-- live), slot, priority, outcome; with an id of 0 a descriptor follows, of another shard.

-- The entry of the dedupe key, where another job that is live has it.
local function taken_by(base, e, id)
  if e.dedupe == '' then return nil end
  local entry = redis.call('HGET', base .. ':keys', dedupe_name(e))
  if not entry or sub(entry, 1, 8) == id then return nil end
  return (unpack_record($KEY_ENTRY, entry, 9)) == 0 and entry or nil
end

-- A job whose dedupe key is free has its keys again, with a new place at the end of its chain. Returns whether it is the
-- first there.
local function come_alive(root, queue, id, e)
  local base, deltas, is_first = root .. ':q:' .. queue, {}, true
  if e.dedupe ~= '' then
    local is_new = redis.call('HSET', base .. ':keys', dedupe_name(e), id .. pack($KEY_ENTRY, 0, e.slot, e.priority, 0))
    deltas[e.slot] = is_new
  end
  if e.send ~= '' then
    local name = send_name(e)
    local entry = redis.call('HGET', base .. ':keys', name)
    if entry and sub(entry, 1, 8) == id then
      local until_ms, slot = unpack_record($KEY_ENTRY, entry, 9)
      if until_ms > e.now then
        redis.call('HSET', base .. ':keys', name, id .. pack('>I8', 0) .. sub(entry, 17))
      else  -- it has passed, and would be gone soon
        redis.call('HDEL', base .. ':keys', name)
        deltas[slot] = (deltas[slot] or 0) - 1
      end
    end
  end
  if e.serialize ~= '' then
    local head, member = redis.call('HGET', root .. ':heads', e.serialize), member_of(queue, id, e.priority)
    if head then
      wait_behind(root, e.serialize, head, redis.call('INCR', root .. ':last'), member)
      is_first = false
    else
      redis.call('HSET', root .. ':heads', e.serialize, pack_head(e.now, NO_ONE, member))
    end
    deltas[e.slot] = (deltas[e.slot] or 0) + 1
  end
  count_slots(root, deltas)
  return is_first
end
