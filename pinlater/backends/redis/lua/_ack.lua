-- End attempts. The first write removes, so a Redis out of memory can be emptied. ARGV has from `from` on:
--   keep succeeded (1 or 0), keep failed (1 or 0), send failed ones to the dead letters (1 or 0), number of kinds
--   then packed, one per kind: 1 succeeded or 0 failed or 2 failed for good or 3 succeeded with a result (4: a reference), priority, retry
--   delay, bytes of the claim descriptor, that, the status to append; with a result before it how long that is kept and
--   the bytes of the status, and the result behind it
--   then which kind each ack is, two bytes each ('' where there is one kind), then the ids, eight bytes each
-- Returns one character per ack (0 ignored, 1 succeeded, 2 retried, 3 failed, 5 cancelled), and the place in ARGV behind all this.
-- BOUND    the acks given
local MAX_TIME = 9007199254740991  -- a call that waited to be joined has a later now than its delay was checked with
local CODES = {[0] = '2', [2] = '1', [3] = '3', [CANCELLED] = '5'}
local ENDED = {2, 3, CANCELLED}

-- The scores of those that are in progress. To write a score costs Redis 3,000 instructions, and jobs that came together
-- have the same one: where the first and the last have, those that have it are looked up instead.
local FEW = 8
local function scores_of(running, ids)
  local n, scores = #ids, {}
  local score = n > FEW and redis.call('ZSCORE', running, ids[1])
  if not score or redis.call('ZSCORE', running, ids[n]) ~= score then return read('ZMSCORE', running, ids) end
  local alike = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', running, score, score, 'LIMIT', 0, 2 * n)) do alike[id] = score end
  for i = 1, n do
    scores[i] = alike[ids[i]]
    if not scores[i] then return read('ZMSCORE', running, ids) end
  end
  return scores
end

-- The state a job goes to, and what it then has as its changed record.
local function ended(base, now, kind, id, claim, extra)
  local remaining, allowed, crashes, status = mutable(redis.call('HGET', base .. ':changed', id), claim)
  local state = 2
  if kind.ending ~= '1' then
    remaining = kind.ending == '2' and 0 or remaining - 1
    state = remaining > 0 and 0 or 3
    if ends_cancelled(base, id, extra, remaining > 0) then state, remaining = CANCELLED, 0 end
  end
  return state, pack(CHANGED, tonumber(now), remaining, allowed, crashes) .. append(status, kind.status)
end

-- Results are kept apart, with what is left of a job that is not kept itself.
local function keep_results(root, base, queue, now, results)
  if #results == 0 then return end
  local set, untils, tiered = {}, {}, 0
  for i, each in ipairs(results) do
    local id, kind, run_after = each[1], each[2], tonumber(each[3])
    local created, allowed, priority = unpack_record(HEAD, redis.call('HGET', base .. ':jobs', id))
    priority = priority % TIERED + (kind.is_reference and TIERED or 0)
    if kind.is_reference then tiered = tiered + 1 end
    local remaining, changed = allowed, redis.call('HGET', base .. ':changed', id)
    if changed then remaining, allowed = mutable(changed) end
    set[2 * i - 1], set[2 * i] = id, pack($RESULT, created, run_after, tonumber(now), allowed, remaining, priority) .. kind.result
    untils[2 * i - 1], untils[2 * i] = string.format('%.0f', kind.result_until), queue .. ':' .. id
  end
  write('HSET', base .. ':results', set)
  write('ZADD', root .. ':results', untils)
  if tiered > 0 then references(root).hold(queue, tiered) end
end

local function ack(root, base, queue, now, from)
  local dead_letters = ARGV[from + 2] == '1'
  local keep_failed = ARGV[from + 1] == '1'
  local keep = {[2] = ARGV[from] == '1', [3] = keep_failed or dead_letters, [CANCELLED] = keep_failed}
  local into_index = {[2] = ':ended:2', [3] = dead_letters and ':dead' or ':ended:3', [CANCELLED] = ':ended:3'}
  local groups, kinds, needs_claims, at = {}, {}, false, from + 4  -- a group is all acks of one priority

  local function group_of(priority)
    for _, group in ipairs(groups) do
      if group.priority == priority then return group end
    end
    local group = {priority = priority, ids = {}, places = {}, out = {}, into = {[0] = {}, [2] = {}, [3] = {}, [CANCELLED] = {}}}
    groups[#groups + 1] = group
    return group
  end

  for i = 1, tonumber(ARGV[from + 3]) do
    local about = ARGV[at]
    local ending, priority, delay, holder_bytes = unpack_record($ACK_KIND, about)
    local status_at = $ACK_KIND_BYTES + holder_bytes + 1
    local kind = {
      group = group_of(priority), ending = tostring(ending),
      run_after = string.format('%d', math.min(tonumber(now) + delay, MAX_TIME)),
      claim = holder_bytes > 0 and sub(about, $ACK_KIND_BYTES + 1, status_at - 1), status = sub(about, status_at),
    }
    if ending >= 3 then
      local ttl, status_bytes, text_at = unpack_record($ACK_RESULT, about, status_at)
      kind.ending, kind.result_until, kind.is_reference = '1', tonumber(now) + ttl, ending == 4
      kind.status, kind.result = sub(about, text_at, text_at + status_bytes - 1), sub(about, text_at + status_bytes)
    end
    kind.rewrites = kind.ending ~= '1' or kind.status ~= ''
    needs_claims = needs_claims or kind.claim or kind.rewrites
    kinds[i], at = kind, at + 1
  end

  -- Which acks there are, of which kinds, and the run_after of each job that is in progress.
  local which, packed_ids = ARGV[at], ARGV[at + 1]
  local total, only = #packed_ids / 8, which == '' and kinds[1]
  local ids, kind_of, run_after = {}, {}, {}
  for i = 1, total do ids[i] = sub(packed_ids, 8 * i - 7, 8 * i) end
  if only then
    run_after = scores_of(base .. ':s:1:' .. only.group.priority, ids)
  else
    for i = 1, total do
      local high, low = byte(which, 2 * i - 1, 2 * i)
      local kind = kinds[high * 256 + low + 1]
      local group = kind.group
      local n = #group.ids + 1
      kind_of[i], group.ids[n], group.places[n] = kind, ids[i], i
    end
    for _, group in ipairs(groups) do
      local found = scores_of(base .. ':s:1:' .. group.priority, group.ids)
      for n, place in ipairs(group.places) do run_after[place] = found[n] end
    end
  end
  local any_extra, any_watched, any_tiered = apart(base)
  local extras = any_extra and read('HMGET', base .. ':extra', ids)
  local ends, results, told = any_extra and new_ends(root, now), {}, {}
  local claims = needs_claims and read('HMGET', base .. ':claims', ids)

  local outcome, done, any = {}, {}, false
  local finished, gone, freed, changed, times = {[2] = {}, [3] = {}, [CANCELLED] = {}}, {}, {}, {}, {}
  local failed = {}
  local expiring = {}
  local last_claim, holder  -- most jobs of a call come from one claim
  for i = 1, total do
    local id, kind, score, code = ids[i], only or kind_of[i], run_after[i], '0'
    if kind.claim and score and claims[i] ~= last_claim then
      last_claim = claims[i]
      holder = sub(last_claim, DESCRIPTOR_AT)
    end
    if score and not done[id] and (not kind.claim or holder == kind.claim) then
      done[id], any = true, true
      local group, state, record = kind.group, 2, nil
      local extra = extras and extras[i]
      if kind.rewrites then state, record = ended(base, now, kind, id, claims[i], extra) end
      code = CODES[state]
      if extra and state == 0 then
        expiring[#expiring + 1] = id
      elseif extra then
        add_end(ends, queue, id, extra, true, keep[state] and STAYS or WINDOWS)
      end
      if kind.result then results[#results + 1] = {id, kind, score} end
      if any_watched and state ~= 0 then told[#told + 1] = id end
      group.out[#group.out + 1] = id
      if state ~= 0 and not keep[state] then
        gone[#gone + 1] = id
      else
        if record then changed[#changed + 1], changed[#changed + 2] = id, record end
        local into = group.into[state]
        local n = #into
        if state == 0 then
          into[n + 1], into[n + 2] = kind.run_after, id
          freed[#freed + 1] = id
          failed[#failed + 1] = {id, claims[i], score, 2}
          times[#times + 1] = kind.run_after
        else
          into[n + 1], into[n + 2] = score, id
          local list = finished[state]
          n = #list
          list[n + 1], list[n + 2] = now, id
        end
      end
    end
    outcome[i] = code
  end

  if any then
    for _, group in ipairs(groups) do
      write('ZREM', base .. ':s:1:' .. group.priority, group.out)
      write('ZREM', base .. ':expiry', group.out)
      for state, members in pairs(group.into) do add(base .. ':s:' .. state .. ':' .. group.priority, members) end
    end
    write('HDEL', base .. ':claims', freed)
    write('HSET', base .. ':changed', changed)
    if #failed > 0 then keep_attempts(root, base, queue, failed, now) end
    for _, state in ipairs(ENDED) do
      local index = into_index[state]
      add(base .. index, finished[state])
      if #finished[state] > 0 then redis.call('ZADD', root .. index, 'LT', now, queue) end
    end
    keep_results(root, base, queue, now, results)
    local R = any_tiered and references(root)
    local dropped = R and R.among(base .. ':jobs', gone, R.of_job)
    for _, key in ipairs({':jobs', ':changed', ':claims'}) do write('HDEL', base .. key, gone) end
    remove_apart(base, gone)
    if R then R.release(queue, dropped) end
    notify(base, tonumber(now), times)
    if any_extra then
      expire_again(root, base, queue, expiring)
      finish_ends(ends)
    end
    tell_ends(root, queue, told)
  end
  return table.concat(outcome), at + 2
end
