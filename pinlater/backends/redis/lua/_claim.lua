-- Hand out eligible jobs to each request in turn. The first write removes, so a Redis out of memory can be emptied.
-- ARGV has from `at` on, packed, one per request: limit, prefetch (so many of the limit, which a queue with groups does
-- not give), max_bytes, claimed_at, time-out, 1 where a job's own time-out counts before that, else 0, number of bytes of
-- the levels, the levels, descriptor. The levels are priorities of a byte each, or those of a queue whose jobs age
-- (_aging.lua). `bounds`: 1 for no more than the queue's quota leaves, else 0; a colon follows where groups have limits,
-- or turns that cost more, then ClaimRequest.most_of_group, where that counts, and after another colon its `spread`.
-- Returns per request {ids, run_afters with commas between, values, changed or '', expiries of their own, groups}: changed
-- is empty where all are '', expiries (place from 0 and time in turn) where there are none; groups are there only where
-- the queue has some.
-- BOUND    limits and max_bytes; no request is looked at once the bodies come to SLICE_BYTES: the answer is shorter then
local PAGE, SLICE_BYTES = 128, $SLICE_BYTES

-- The ids of up to `page` eligible jobs, and their scores. To write a score costs Redis 3,000 instructions, and jobs that
-- came together have the same one: of several jobs in their order only the first and the last are asked for it.
local function eligible(pending, page, latest)
  local call = redis.call
  if page == 1 then
    local found = call('ZRANGEBYSCORE', pending, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, 1)
    return {found[1]}, {found[2]}
  end
  local ids = call('ZRANGEBYSCORE', pending, '-inf', latest, 'LIMIT', 0, page)
  local n = #ids
  if n == 0 then return ids, {} end
  local score = call('ZSCORE', pending, ids[1])
  if n > 1 and call('ZSCORE', pending, ids[n]) ~= score then return ids, call('ZMSCORE', pending, unpack(ids)) end
  local scores = {}
  for i = 1, n do scores[i] = score end
  return ids, scores
end

local function claim(root, base, queue, now, bounds, at, queue_entry)
  local call, most, spread = redis.call, nil, nil
  if #bounds > 1 then
    most, spread = string.match(bounds, '^.:(%d*):?(.*)')
    most, spread = tonumber(most), spread ~= '' and spread or nil
  end
  local given, earliest = 0, nil
  local jobs_key, changed_key = base .. ':jobs', base .. ':changed'
  local claims_key, expiry_key = base .. ':claims', base .. ':expiry'
  -- What this script adds there belongs to jobs that it has handed out, so it need not look again.
  local any_changed = call('EXISTS', changed_key) == 1
  local lines, entered = string.sub(queue_entry, -1) == '$GROUPS_MARK' and lines_of(base, most, spread), {}
  local is_clearing = lines and string.sub(queue_entry, -2, -2) == '$CLEARING_MARK'
  local any_extra = call('EXISTS', base .. ':extra') == 1
  if any_extra and not sweep(base, now, SWEPT) then
    redis.pcall('PUBLISH', base .. ':news', '- 1 0')  -- there are more of them: come again
    return {{}}
  end

  -- Up to `left` jobs of one priority into `out`; returns how many and the bytes that are left, negative when full.
  local function take(out, priority, left, room, expiry, prefix, descriptor, claimed_at, is_default)
    local pending, taken = base .. ':s:0:' .. priority, 0
    local in_line = lines
    if lines and not is_clearing and not entered[priority] then
      entered[priority] = true
      lines.enter_due(priority, now)
    end
    local records, ids_out, scores_out, values_out = {}, out[1], out[2], out[3]
    while taken < left and room >= 0 do
      local page = math.min(PAGE, left - taken)
      local ids, scores, picked, turns
      if in_line then ids, scores, picked, turns = lines.first(priority, page, now) end
      if is_clearing and in_line and #ids == 0 then in_line = false end
      if not in_line then ids, scores = eligible(pending, page, now) end
      local n = #ids
      if n == 0 then break end
      local at_end = n < page and not (is_clearing and in_line)
      -- Large bodies that will not fit are not even read, where the first one tells the size of the others.
      if n > 1 then
        local fitting = math.floor(room / call('HSTRLEN', jobs_key, ids[1])) + 1
        if fitting < n then n, at_end = fitting, false end
      end
      local values = call('HMGET', jobs_key, unpack(ids, 1, n))
      local changed = any_changed and call('HMGET', changed_key, unpack(ids, 1, n))
      local extras = any_extra and is_default and call('HMGET', base .. ':extra', unpack(ids, 1, n))
      local moved, expiries, claims, first_status, fit, o = {}, {}, {}, {}, 0, #ids_out
      for i = 1, n do
        local value = values[i]
        local about = sub(value, $CREATED_BYTES + 1, $HEAD_BYTES)
        local record = records[about]
        if not record then
          local _, attempts, level, status_bytes = unpack_record(HEAD, value)
          local refers = level >= TIERED and $HEAD_BYTES + status_bytes + 1
          record = {prefix .. pack($CLAIM_END, attempts, priority) .. descriptor, status_bytes, attempts, refers}
          records[about] = record
        end
        local size = record[4] and unpack_record($LENGTH, value, record[4]) or #value - $HEAD_BYTES - record[2]
        room = room - size
        if room < 0 and o > 0 then break end
        given = given + size
        fit = i
        local id = ids[i]
        moved[2 * i - 1], moved[2 * i] = scores[i], id
        expiries[2 * i - 1], expiries[2 * i] = expiry, id
        claims[2 * i - 1], claims[2 * i] = id, record[1]
        local own = extras and extras[i] and unpack_record($EXTRA_TIMEOUT, extras[i]) or 0
        if own > 0 then
          local own_expiry = string.format('%d', claimed_at + own)
          expiries[2 * i - 1] = own_expiry
          claims[2 * i] = pack($CLAIM_START, claimed_at, own) .. sub(record[1], #prefix + 1)
          out[5][#out[5] + 1], out[5][#out[5] + 2] = o, own_expiry
          earliest = math.min(earliest or math.huge, claimed_at + own)
        end
        local was = changed and changed[i] or ''
        if record[2] > 0 and was == '' then
          first_status[#first_status + 1] = id
          first_status[#first_status + 1] = pack(CHANGED, now, record[3], record[3], 0) .. sub(value, $HEAD_BYTES + 1, $HEAD_BYTES + record[2])
        end
        o = o + 1
        ids_out[o], scores_out[o], values_out[o] = id, scores[i], value
        if changed then out[4][o] = was end
        if out[6] then out[6][o] = in_line and picked[i].group or '' end
      end
      if fit == 0 then break end
      if in_line then
        lines.serve(priority, ids, picked, turns, fit)
      else
        call('ZREMRANGEBYRANK', pending, 0, fit - 1)
      end
      add(base .. ':s:1:' .. priority, moved)
      add(expiry_key, expiries)
      call('HSET', claims_key, unpack(claims))
      if #first_status > 0 then call('HSET', changed_key, unpack(first_status)) end
      taken = taken + fit
      if at_end then break end
    end
    return taken, room
  end

  -- How many more claims may be alive.
  local free = math.huge
  if sub(bounds, 1, 1) == '1' then
    local quota = tonumber(string.match(call('HGET', root .. ':shares', queue) or '0', '^%d+'))
    free = quota - call('ZCARD', expiry_key)
  end

  local answer = {}
  while at <= #ARGV and given < SLICE_BYTES do
    local request, out = ARGV[at], {{}, {}, {}, {}, {}, lines and {} or nil}
    local limit, prefetch, room, claimed_at, timeout, is_default, levels = unpack_record($REQUEST, request)
    if lines then limit = limit - prefetch end
    local left, expiry = math.min(limit, free), string.format('%d', claimed_at + timeout)
    local last = $REQUEST_BYTES + levels
    local prefix, descriptor = pack($CLAIM_START, claimed_at, timeout), sub(request, last + 1)
    local first = byte(request, $REQUEST_BYTES + 1)
    if levels > 0 and first >= $AGED then
      local aging = aging_of(base, sub(request, $REQUEST_BYTES + 1, last), now)
      for _, priority in ipairs(lines and aging.priorities or {}) do
        if not (is_clearing or entered[priority]) then lines.enter_due(priority, now) end
        entered[priority] = true
      end
      local ordered, from, to = aging.order(lines, math.max(0, left), is_clearing), 1, 1
      while ordered[from] do
        while ordered[to + 1] and ordered[to + 1].priority == ordered[from].priority do to = to + 1 end
        local priority, count = ordered[from].priority, to - from + 1
        room = select(2, take(out, priority, count, room, expiry, prefix, descriptor, claimed_at, is_default == 1))
        if room < 0 then break end
        from, to = to + 1, to + 1
      end
      last = 0
    end
    for p = $REQUEST_BYTES + 1, last do
      if left <= 0 or room < 0 then break end
      local taken
      taken, room = take(out, byte(request, p), left, room, expiry, prefix, descriptor, claimed_at, is_default == 1)
      left = left - taken
    end
    free = free - #out[1]
    local any = #out[1] > 0
    if any and (not earliest or tonumber(expiry) < earliest) then earliest = tonumber(expiry) end
    answer[#answer + 1] = any and {table.concat(out[1]), table.concat(out[2], ','), unpack(out, 3, 6)} or {}
    at = at + 1
  end
  if earliest then call('ZADD', root .. ':claimed', 'LT', string.format('%d', earliest), queue) end
  return answer
end
