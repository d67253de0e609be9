-- End claims as expired or released: back to PENDING, or to FAILED without attempts or over the crash budget.
-- `jobs` are {id, claim} of jobs in progress, each once, perhaps with when a retry is due (else: now). `codes`, if given,
-- gets by id what became of each: 2 retried, 3 failed, 5 cancelled. `words`: the status line around the attempts that remain, and
-- the one around the crashes. `dead_letters`: those that fail wait to be copied as dead letters. Returns how many
-- went back, how many failed and how many ended as cancelled.
-- The first write removes, and removing is allowed in a Redis out of memory; then so is the rest of the script.
local function expire(root, queue, jobs, now, budget, dead_letters, words, codes)
  local base = root .. ':q:' .. queue
  local ids = {}
  for i, job in ipairs(jobs) do ids[i] = job[1] end
  if #ids == 0 then return 0, 0, 0 end
  write('ZREM', base .. ':expiry', ids)
  local changed = read('HMGET', base .. ':changed', ids)
  local any_extra, any_watched = apart(base)
  local extras = any_extra and read('HMGET', base .. ':extra', ids) or {}
  local ends, told, pending, cancelled = any_extra and new_ends(root, now), {}, {}, 0
  local new, moves, freed, ended, times = {}, {}, {}, {}, {}
  local at_once, retried, failed = string.format('%.0f', now), 0, 0
  local ending = {}
  local ended_as_cancelled, of_claim, of_changed = {}, {}, {}  -- claims that expire together are mostly alike: a quarter of the script's time
  for i, id in ipairs(ids) do
    local claim, was = jobs[i][2], changed[i]
    local known = was and of_changed or of_claim
    local expired = known[was or claim]
    if not expired then
      local remaining, allowed, crashes, status = mutable(was, claim)
      crashes = crashes + 1
      local used_up = budget > 0 and crashes >= budget
      remaining = used_up and 0 or remaining - 1
      local line = words[1] .. remaining .. words[2]
      if used_up then line = line .. words[3] .. crashes .. words[4] end
      local record = pack(CHANGED, now, remaining, allowed, crashes) .. append(status, line)
      expired = {record = record, retries = remaining > 0}
      known[was or claim] = expired
    end
    new[2 * i - 1], new[2 * i] = id, expired.record
    local priority = byte(claim, DESCRIPTOR_AT - 1)
    local move = moves[priority]
    if not move then
      move = {out = {}, pending = {}, failed = {}, failed_ids = {}, cancelled_ids = {}, ending = {}}
      moves[priority] = move
    end
    move.out[#move.out + 1] = id
    local extra, code = extras[i], '3'
    if ends_cancelled(base, id, extra, expired.retries) then
      cancelled, code = cancelled + 1, '5'
      new[2 * i] = without_attempts(expired.record)
      ended_as_cancelled[2 * cancelled - 1], ended_as_cancelled[2 * cancelled] = at_once, id
      move.cancelled_ids[#move.cancelled_ids + 1] = id
      add_end(ends, queue, id, extra, true, STAYS)
      told[#told + 1] = id
    elseif expired.retries then
      if extra then pending[#pending + 1] = id end
      retried, code = retried + 1, '2'
      freed[retried], times[retried] = id, jobs[i][3] or at_once
      local n = #move.pending
      move.pending[n + 1], move.pending[n + 2] = times[retried], id
      move.ending[#move.ending + 1] = {id, claim, 0, 3}
    else
      failed = failed + 1
      if extra then add_end(ends, queue, id, extra, true, STAYS) end
      told[#told + 1] = id
      ended[2 * failed - 1], ended[2 * failed] = at_once, id
      move.failed_ids[#move.failed_ids + 1] = id
      move.ending[#move.ending + 1] = {id, claim, 0, 3 + ENDS_JOB}
    end
    if codes then codes[id] = code end
  end
  for priority, move in pairs(moves) do
    local run_after = read('ZMSCORE', base .. ':s:1:' .. priority, move.failed_ids)
    for i, id in ipairs(move.failed_ids) do
      move.failed[2 * i - 1] = run_after[i]
      move.failed[2 * i] = id
    end
    for _, each in ipairs(move.ending) do
      each[3] = redis.call('ZSCORE', base .. ':s:1:' .. priority, each[1])
      ending[#ending + 1] = each
    end
    local cancelled_at, into = read('ZMSCORE', base .. ':s:1:' .. priority, move.cancelled_ids), {}
    for i, id in ipairs(move.cancelled_ids) do into[2 * i - 1], into[2 * i] = cancelled_at[i], id end
    write('ZREM', base .. ':s:1:' .. priority, move.out)
    write('ZADD', base .. ':s:5:' .. priority, into)
    write('ZADD', base .. ':s:0:' .. priority, move.pending)
    write('ZADD', base .. ':s:3:' .. priority, move.failed)
  end
  write('HSET', base .. ':changed', new)
  write('HDEL', base .. ':claims', freed)
  keep_attempts(root, base, queue, ending, now)
  local index = dead_letters and ':dead' or ':ended:3'
  write('ZADD', base .. index, ended)
  if failed > 0 then redis.call('ZADD', root .. index, 'LT', at_once, queue) end
  write('ZADD', base .. ':ended:3', ended_as_cancelled)
  if cancelled > 0 then redis.call('ZADD', root .. ':ended:3', 'LT', at_once, queue) end
  notify(base, now, times)
  if any_extra then
    expire_again(root, base, queue, pending)
    finish_ends(ends)
  end
  if any_watched then tell_ends(root, queue, told) end
  return retried, failed, cancelled
end
