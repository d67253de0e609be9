-- Jobs of one priority and state, FAILED or CANCELLED, each given once, back to PENDING. `attempts` '': as many as were
-- allowed. Those whose dedupe key has another live job stay, and those whose dead letters run, succeeded or are elsewhere;
-- other letters go. Returns how many went. The first write removes.
local function retry(root, queue, priority, state, given, attempts, run_after, now)
  local base = root .. ':q:' .. queue
  local extras = redis.call('EXISTS', base .. ':extra') == 1 and read('HMGET', base .. ':extra', given) or {}
  local ids, extended, taken, letters = {}, {}, {}, {}
  local any_link = redis.call('EXISTS', base .. ':links') == 1
  local shard = any_link and string.match(redis.call('HGET', root, 'shard'), '^%w*')
  for i, id in ipairs(given) do
    local _, _, moved_to = '', '', ''
    if any_link then _, _, moved_to = linked(base, id) end
    local letter = moved_to ~= '' and letter_of(root, shard, moved_to)
    local e = extras[i] and extra_of(extras[i])
    if e and is_flagged(e.flags, HISTORY) then e.dedupe, e.serialize, e.send = '', '', '' end
    local name = e and e.dedupe ~= '' and dedupe_name(e)
    if letter ~= 'held' and not (name and (taken[name] or taken_by(base, e, id))) then
      if type(letter) == 'table' then letters[#letters + 1] = letter end
      ids[#ids + 1] = id
      if name then taken[name] = true end
      if e then extended[id] = e end
    end
  end
  if #ids == 0 then return 0 end
  local changed, new, pending, waiting, times = read('HMGET', base .. ':changed', ids), {}, {}, {}, {}
  local eligible, finished = read('ZMSCORE', base .. ':s:' .. state .. ':' .. priority, ids), read('ZMSCORE', base .. ':ended:3', ids)
  for i, id in ipairs(ids) do finished[i] = finished[i] or redis.call('ZSCORE', base .. ':dead', id) end
  write('ZREM', base .. ':s:' .. state .. ':' .. priority, ids)
  write('ZREM', base .. ':ended:3', ids)
  write('ZREM', base .. ':dead', ids)
  keep_last_attempts(root, base, queue, ids, eligible, finished, state == CANCELLED and 4 or 2)
  write('HDEL', base .. ':claims', ids)
  local again = {}
  for i, id in ipairs(ids) do
    local _, _, allowed = unpack_record(CHANGED, changed[i])
    local remaining = attempts ~= '' and tonumber(attempts) or allowed
    new[2 * i - 1] = id
    new[2 * i] = pack(CHANGED, now, remaining, allowed, 0) .. sub(changed[i], CHANGED_STATUS_AT)
    local e, is_first = extended[id], true
    if e then
      e.now = now
      is_first = come_alive(root, queue, id, e)
      again[#again + 1] = id
      -- What asked it to stop is done with. A dead letter's keys are not among those of `e`.
      local record = extra_of(redis.call('HGET', base .. ':extra', id))
      if is_flagged(record.flags, STOP) then
        record.flags, record.by = record.flags - STOP, ''
        redis.call('HSET', base .. ':extra', id, pack_extra(record))
      end
    end
    local into = is_first and pending or waiting
    into[#into + 1] = run_after
    into[#into + 1] = id
    if is_first then times[#times + 1] = run_after end
  end
  write('HSET', base .. ':changed', new)
  write('ZADD', base .. ':s:0:' .. priority, pending)
  write('ZADD', base .. ':s:4:' .. priority, waiting)
  expire_again(root, base, queue, again)
  notify(base, now, times)
  for _, letter in ipairs(letters) do
    local its_base = root .. ':q:' .. letter.queue
    if letter.state == IN_LINE then
      lines_of(its_base).leave(letter.priority, {letter.id})
    else
      redis.call('ZREM', its_base .. ':s:' .. letter.state .. ':' .. letter.priority, letter.id)
    end
    forget(root, letter.queue, letter.state, {letter.id}, now)
  end
  if any_link then
    for _, id in ipairs(ids) do
      local origin, origin_attempts, moved_to = linked(base, id)
      if moved_to ~= '' then link(base, id, origin, origin_attempts, '') end
    end
  end
  return #ids
end
