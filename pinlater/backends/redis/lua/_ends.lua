-- What the ends of extended jobs do (JobEnd in extended.py), and who is told of ends. A script makes `new_ends`, adds the
-- jobs while it works, and carries all of it out with `finish_ends`, behind its first write, which removes.

-- What stays of a job: all of it; its windows; nothing that names it.
local STAYS, WINDOWS, NOTHING = 1, 2, 3

local function new_ends(root, now)
  return {root = root, now = tonumber(now), of_queue = {}, chains = {}, keys = {}, any = false}
end

local function ends_of(ends, queue)
  local own = ends.of_queue[queue]
  if not own then
    own = {base = ends.root .. ':q:' .. queue, gone = {}, expiring = {}}
    own.names, own.ids, own.keep_for, own.is_live, own.stays = {}, {}, {}, {}, {}  -- of each key; a table each is slow
    ends.of_queue[queue] = own
  end
  return own
end

-- A job that ends now (`is_live`) or ended before, and what stays of it.
local function add_end(ends, queue, id, record, is_live, stays)
  local expires, keep_for, slot, priority, flags, dedupe, serialize, send = keys_in(record)
  local own = ends.of_queue[queue] or ends_of(ends, queue)
  ends.any = true
  if stays ~= STAYS then
    own.gone[#own.gone + 1] = id
    if is_flagged(flags, TAGGED) then
      own.tagged = own.tagged or {}
      own.tagged[#own.tagged + 1], own.level_of = id, own.level_of or {}
      own.level_of[id] = string.char(priority)
    end
  end
  if is_flagged(flags, HISTORY) then return end
  if is_live and expires > 0 then own.expiring[#own.expiring + 1] = id end
  if is_live and serialize then
    local chain, member = ends.chains[serialize], member_of(queue, id, priority)
    if chain then
      chain[#chain + 1] = member
    else
      ends.chains[serialize] = {member, slot = slot}
      ends.keys[#ends.keys + 1] = serialize
    end
  end
  if dedupe then
    local n = #own.names + 1
    own.names[n], own.ids[n], own.keep_for[n], own.is_live[n], own.stays[n] = dedupe, id, keep_for, is_live, stays
  end
  if send and is_live then
    local n = #own.names + 1
    own.names[n], own.ids[n], own.keep_for[n], own.is_live[n], own.stays[n] = send, id, SEND_ID_KEPT_MS, true, WINDOWS
  end
end

-- A key goes from a job that has ended to its successor, whose entry is given; that waits no more, unless in a chain.
local function hand_over(ends, queue, own, name, entry, freed)
  local id, _, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
  redis.call('HSET', own.base .. ':keys', name, entry)
  local _, _, _, _, _, _, serialize = keys_in(redis.call('HGET', own.base .. ':extra', id))
  if not serialize then free(ends.root, queue, priority, id, ends.now, freed) end
end

-- The entries of the jobs' keys, of one queue.
local function end_keys(ends, queue, own, deltas, freed)
  local root, now, set, gone, windows, past = ends.root, ends.now, {}, {}, {}, {}
  local names, ids, keeps, lives, all_stay = own.names, own.ids, own.keep_for, own.is_live, own.stays
  for i, entry in ipairs(read('HMGET', own.base .. ':keys', names)) do
    local name, id = names[i], ids[i]
    local successor = entry and successor_of(entry)
    if successor == id then
      redis.call('HSET', own.base .. ':keys', name, sub(entry, 1, $SUCCESSOR_AT - 1))
    elseif successor and sub(entry, 1, 8) == id then
      hand_over(ends, queue, own, name, entry_of_successor(entry), freed)
    elseif entry and sub(entry, 1, 8) == id then
      local keep_for, is_live, stays = keeps[i], lives[i], all_stay[i]
      local until_ms, slot = unpack_record($KEY_ENTRY, entry, 9)
      if is_live then until_ms = keep_for < 0 and KEPT or now + keep_for end
      local has_window = until_ms > now and until_ms ~= KEPT
      if stays == NOTHING or (stays == WINDOWS and not has_window) then
        gone[#gone + 1] = name
        deltas[slot] = (deltas[slot] or 0) - 1
        if not is_live then past[#past + 1] = queue .. ':' .. name end
      elseif is_live then
        set[#set + 1] = name
        set[#set + 1] = id .. pack('>I8', until_ms) .. sub(entry, 17)
        if has_window then
          windows[#windows + 1] = until_ms
          windows[#windows + 1] = queue .. ':' .. name
        end
      end
    end
  end
  write('HDEL', own.base .. ':keys', gone)
  write('ZREM', root .. ':windows', past)
  write('HSET', own.base .. ':keys', set)
  write('ZADD', root .. ':windows', windows)
end

-- Carry it out: windows, chains, the counts of slots. Returns the run_afters of freed jobs by queue, which are told.
local function finish_ends(ends)
  local root, now, deltas, freed = ends.root, ends.now, {}, {}
  if not ends.any then return end
  for queue, own in pairs(ends.of_queue) do
    write('HDEL', own.base .. ':extra', own.gone)
    if own.tagged then
      local entries = {}
      for i, tags in ipairs(read('HMGET', own.base .. ':tagged', own.tagged)) do
        local id = own.tagged[i]
        for tag in string.gmatch(tags or '', '[^\n]+') do entries[#entries + 1] = tag .. '\0' .. id .. own.level_of[id] end
      end
      write('HDEL', own.base .. ':tagged', own.tagged)
      write('ZREM', own.base .. ':tags', entries)
    end
    write('ZREM', own.base .. ':until', own.expiring)
    write('ZREM', own.base .. ':expired', own.expiring)
    if #own.names > 0 then end_keys(ends, queue, own, deltas, freed) end
  end
  local alone = {}
  for i, head in ipairs(read('HMGET', root .. ':heads', ends.keys)) do
    local key = ends.keys[i]
    local chain, left = ends.chains[key], nil
    -- Most keys have one job, which is the first: these go together.
    if head and #chain == 1 and byte(head, 9) == NO_ONE and sub(head, 10) == chain[1] then
      alone[#alone + 1], left = key, 1
    else
      left = leave_chain(root, key, head, chain, now, freed)
    end
    deltas[chain.slot] = (deltas[chain.slot] or 0) - left
  end
  write('HDEL', root .. ':heads', alone)
  count_slots(root, deltas)
  notify_freed(root, now, freed)
end

-- Tell of ends that somebody waits for.
local function tell_ends(root, queue, ids)
  if #ids == 0 then return end
  local key, watched = root .. ':q:' .. queue .. ':watched', {}
  for i, score in ipairs(read('ZMSCORE', key, ids)) do
    if score then watched[#watched + 1] = ids[i] end
  end
  if #watched == 0 then return end
  write('ZREM', key, watched)
  redis.pcall('PUBLISH', root .. ':ends', queue .. ':' .. table.concat(watched))
end
