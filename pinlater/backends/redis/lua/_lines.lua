-- Groups (group_store.py): due jobs wait in lines, and the groups take turns.
-- BASE:lines:PRIORITY  has the jobs in line, with one score: group, a zero byte, run_after, id; so bytes are in their order
-- BASE:turns:PRIORITY  the groups that have jobs in line, by their next turns; BASE:ahead:PRIORITY those that have none any
--                      more, and turns ahead of the virtual time
-- BASE:turn            the virtual time, by priority
-- BASE:rules           of a group by name its weight and until when it is paused (group_rules.py); '' has the patterns
-- BASE:held:PRIORITY   the groups that are held back since they are paused, or have no room, until then; BASE:ahead has
--                      their turns
-- BASE:rooms           how many jobs of a group claims may hand out, and until when that counts (put_rooms.lua)
-- The entry of a queue with groups in ROOT:queues ends with $GROUPS_MARK, and with $CLEARING_MARK$GROUPS_MARK from a step
-- of clear_groups.lua on until a job with a group comes in; meanwhile no job comes into line.
-- The functions are made only where a queue has groups: to make a function costs every call. `most` of a claim:
-- ClaimRequest.most_of_group; nil where that is 0. `spread`: ClaimRequest.spread in JSON, or nil.
local function lines_of(base, most, spread)
  local call, L = redis.call, {}
  local ENTERED, HELD_AT_ONCE = $ENTERED, $HELD_AT_ONCE

  local function exact(number) return string.format('%.17g', number) end
  local function member(group, run_after, id) return group .. '\0' .. pack('>I8', tonumber(run_after)) .. id end

  -- Members of a group's line, from a place on.
  local function line(priority, group, from, count)
    local key = base .. ':lines:' .. priority
    return call('ZRANGEBYLEX', key, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', from, count)
  end

  -- What counts for a group: its weight, and until when it is paused; 0: it is not.
  local patterns
  local function fits(parts, group)
    local at, last, stop = #parts[1], parts[#parts], #group - #parts[#parts]
    if sub(group, 1, at) ~= parts[1] or sub(group, stop + 1) ~= last then return false end
    for i = 2, #parts - 1 do
      local _, found = string.find(sub(group, 1, math.max(0, stop)), parts[i], at + 1, true)
      if not found then return false end
      at = found
    end
    return at <= stop
  end
  local function rule(group, text)
    if text and group ~= '' then return unpack_record($GROUP_RULE, text) end
    patterns = patterns or cjson.decode(call('HGET', base .. ':rules', '') or '[]')
    for _, each in ipairs(patterns) do
      if fits(each[1], group) then return each[2], 0 end
    end
    return 1, 0
  end

  -- These groups have jobs in line: they wait for their turns, but for those that do already, and those held back.
  local function wait(priority, groups)
    local turns, ahead, held, time = base .. ':turns:' .. priority, base .. ':ahead:' .. priority, base .. ':held:' .. priority, nil
    local any_held = call('EXISTS', held) == 1
    for _, group in ipairs(groups) do
      if not call('ZSCORE', turns, group) and not (any_held and call('ZSCORE', held, group)) then
        time = time or tonumber(call('HGET', base .. ':turn', priority) or 0)
        local turn = call('ZSCORE', ahead, group)
        if turn then call('ZREM', ahead, group) end
        call('ZADD', turns, exact(math.max(time, tonumber(turn or 0))), group)
      end
    end
  end

  -- The groups of a priority that wait for their turns, up to WEIGHED of them, and their weights.
  function L.waiting(priority)
    local names, weights = call('ZRANGE', base .. ':turns:' .. priority, 0, $WEIGHED - 1), {}
    local texts = call('EXISTS', base .. ':rules') == 1 and read('HMGET', base .. ':rules', names)
    for i, name in ipairs(names) do weights[i] = texts and rule(name, texts[i]) or 1 end
    return names, weights
  end

  -- The sum of these weights.
  function L.weights(priority)
    if call('EXISTS', base .. ':rules') == 0 then return call('ZCARD', base .. ':turns:' .. priority) end
    local _, weights = L.waiting(priority)
    local sum = 0
    for _, weight in ipairs(weights) do sum = sum + weight end
    return sum
  end

  -- How many jobs of a priority wait in the lines of groups that are held back now, up to HELD_AT_ONCE of these.
  function L.held_jobs(priority, now)
    local key, sum = base .. ':lines:' .. priority, 0
    for _, group in ipairs(call('ZRANGEBYSCORE', base .. ':held:' .. priority, '(' .. now, '+inf', 'LIMIT', 0, HELD_AT_ONCE)) do
      sum = sum + call('ZLEXCOUNT', key, '[' .. group .. '\0', '(' .. group .. '\1')
    end
    return sum
  end

  -- Groups that were held back, and are no more, wait for their turns again where they have jobs.
  function L.free(priority, groups)
    write('ZREM', base .. ':held:' .. priority, groups)
    local waiting = {}
    for _, group in ipairs(groups) do
      if L.has_jobs(priority, group) then waiting[#waiting + 1] = group end
    end
    wait(priority, waiting)
  end

  -- Whether a group has jobs in line.
  function L.has_jobs(priority, group) return line(priority, group, 0, 1)[1] ~= nil end

  -- Whether a group is paused, or the group of this job.
  function L.is_group_paused(group, now)
    if call('EXISTS', base .. ':rules') == 0 then return false end
    local _, until_ms = rule(group, call('HGET', base .. ':rules', group))
    return until_ms > now
  end
  function L.is_paused(record, now) return L.is_group_paused(L.group_in(record), now) end

  -- The group of a job, by its extra record, if it has one.
  function L.group_in(record)
    if not record or byte(record, $EXTRA_FLAGS_AT) % (2 * $GROUPED) < $GROUPED then return '' end
    local _, _, _, _, _, _, d, s, i, b, at = unpack_record($EXTRA, record)
    at = at + 5 + d + s + i + b
    return sub(record, at + 1, at + byte(record, at))
  end

  -- From now on the queue has groups: claims ask for them by its entry, and versions before leave the store alone.
  function L.mark(root, queue)
    local entry = call('HGET', root .. ':queues', queue)
    if sub(entry, -1) == '$GROUPS_MARK' then
      if sub(entry, -2, -2) == '$CLEARING_MARK' then call('HSET', root .. ':queues', queue, sub(entry, 1, -3) .. '$GROUPS_MARK') end
      return
    end
    call('HSET', root .. ':queues', queue, entry .. '$GROUPS_MARK')
    raise_version(root, $GROUPS_VERSION)
  end

  -- Due jobs come into line. A group that has none there has its next turn now, or later where it is ahead.
  function L.enter(priority, groups, run_afters, ids)
    local members, states, new, waiting, fronts, time = {}, {}, {}, {}, {}, nil
    for i, id in ipairs(ids) do
      local a, b, group, run_after = 2 * i - 1, 2 * i, groups[i], run_afters[i]
      if run_after ~= time then time, fronts = run_after, {} end  -- that of most jobs is the same
      local front = fronts[group] or member(group, run_after, '')
      fronts[group], members[a], members[b], states[a], states[b] = front, 0, front .. id, run_after, id
      if not new[group] then new[group], waiting[#waiting + 1] = true, group end
    end
    add(base .. ':s:8:' .. priority, states)
    add(base .. ':lines:' .. priority, members)
    wait(priority, waiting)
  end

  -- Up to ENTERED due jobs of a priority come into line. The first write removes.
  function L.enter_due(priority, now)
    local pending = base .. ':s:0:' .. priority
    local found = call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ENTERED)
    if #found == 0 then return end
    local ids, run_afters, groups = {}, {}, {}
    for i = 1, #found / 2 do ids[i], run_afters[i] = found[2 * i - 1], found[2 * i] end
    for i, record in ipairs(read('HMGET', base .. ':extra', ids)) do groups[i] = L.group_in(record) end
    call('ZREMRANGEBYRANK', pending, 0, #ids - 1)
    L.enter(priority, groups, run_afters, ids)
  end

  -- What this claim may still hand out of a group: `left` jobs; until when that counts where it is the group's room, else 0.
  -- Jobs without a group have no bound.
  local NO_BOUND, rooms = {left = math.huge, until_ms = 0}, {}
  local function read_rooms(groups, now)
    local new = {}
    for _, group in ipairs(groups) do
      if not rooms[group] then new[#new + 1] = group end
    end
    for i, text in ipairs(read('HMGET', base .. ':rooms', new)) do
      local jobs, until_ms = string.match(text or '', '^(%d+) (%d+)$')
      if jobs and tonumber(until_ms) > now then
        rooms[new[i]] = {left = tonumber(jobs), until_ms = tonumber(until_ms)}
      else
        rooms[new[i]] = new[i] == '' and NO_BOUND or {left = most, until_ms = 0}
      end
    end
  end

  -- A group has no job in line any more: the turns that it had ahead of the virtual time stay.
  local function end_wait(priority, group, turn)
    call('ZREM', base .. ':turns:' .. priority, group)
    call('ZADD', base .. ':ahead:' .. priority, exact(turn), group)
  end

  local function hold(priority, group, turn, until_ms)
    end_wait(priority, group, turn)
    call('ZADD', base .. ':held:' .. priority, string.format('%.0f', until_ms), group)
  end

  -- How many times as much as on one shard a turn of a group costs.
  spread = spread and cjson.decode(spread)
  local function shards_of(priority, group)
    local shards = spread and spread[tostring(priority)]
    return shards and shards[group] or 1
  end

  -- The first groups of a priority that may run, by turn. Those that are paused, or have no room, are held back from now
  -- on, but where `looks` forbids to write. The first write removes.
  local function next_groups(priority, page, now, looks)
    local turns, held = base .. ':turns:' .. priority, base .. ':held:' .. priority
    local any_rules, wanted = call('EXISTS', base .. ':rules') == 1, page
    now = tonumber(now)
    local over = call('ZRANGEBYSCORE', held, '-inf', now, 'LIMIT', 0, HELD_AT_ONCE)
    if over[1] and not looks then
      L.free(priority, over)
      over = {}
    end
    while true do
      local found, names, waiting, barred = call('ZRANGE', turns, 0, wanted - 1, 'WITHSCORES'), {}, {}, {}
      for _, group in ipairs(over) do
        found[#found + 1], found[#found + 2] = group, call('ZSCORE', base .. ':ahead:' .. priority, group) or 0
      end
      for i = 1, #found, 2 do names[#names + 1] = found[i] end
      local rules = any_rules and read('HMGET', base .. ':rules', names)
      if most then read_rooms(names, now) end
      for i, group in ipairs(names) do
        local weight, until_ms = 1, 0
        if rules then weight, until_ms = rule(group, rules[i]) end
        local turn, room = tonumber(found[2 * i]), most and rooms[group] or NO_BOUND
        if room.left <= 0 then until_ms = math.max(until_ms, room.until_ms) end
        if until_ms > now then
          barred[#barred + 1] = {group, turn, until_ms}
        elseif room.left > 0 and #waiting < page then
          local one = {group = group, turn = turn, place = i, room = room, taken = 0, members = {}, stride = shards_of(priority, group) / weight}
          waiting[#waiting + 1] = one
        end
      end
      if looks or #barred == 0 then
        if #names - #over < wanted or #waiting == page then
          if over[1] then table.sort(waiting, function(a, b) return a.turn < b.turn end) end
          return waiting
        end
        wanted = 2 * wanted - #waiting
      else
        for _, each in ipairs(barred) do hold(priority, unpack(each)) end
      end
    end
  end

  -- Up to `page` jobs of a priority by the turns of their groups: ids, run_afters, and what `serve` has to know.
  function L.first(priority, page, now, looks)
    local waiting, ids, run_afters, picked, turns, times = next_groups(priority, page, now, looks), {}, {}, {}, {}, {}
    local chunk = math.ceil(page / math.max(1, #waiting))
    while #ids < page and #waiting > 0 do
      local one = table.remove(waiting, 1)
      if one.taken == #one.members and one.taken < one.room.left and not one.at_end then
        local more = line(priority, one.group, one.taken, chunk)
        for _, each in ipairs(more) do one.members[#one.members + 1] = each end
        one.at_end = #more < chunk
      end
      if one.taken < #one.members and one.taken < one.room.left then
        one.taken = one.taken + 1
        local n, each = #ids + 1, one.members[one.taken]
        local time = sub(each, -16, -9)
        times[time] = times[time] or string.format('%.0f', (unpack_record('>I8', time)))
        ids[n], run_afters[n] = sub(each, -8), times[time]
        picked[n], turns[n] = one, one.turn
        one.turn = one.turn + one.stride
        local at = #waiting
        while at > 0 and (waiting[at].turn > one.turn or waiting[at].turn == one.turn and waiting[at].place > one.place) do
          at = at - 1
        end
        table.insert(waiting, at + 1, one)
      end
    end
    return ids, run_afters, picked, turns
  end

  -- The first `count` jobs that `first` gave were handed out: their groups have had so many turns, and have less room.
  function L.serve(priority, ids, picked, turns, count)
    local gone, served, next_turns = {}, {}, {}
    for i = 1, count do
      local one = picked[i]
      gone[i] = ids[i]
      if not one.served then
        one.served, one.next = 0, turns[i]
        served[#served + 1] = one
      end
      one.served, one.next = one.served + 1, one.next + one.stride
    end
    write('ZREM', base .. ':s:8:' .. priority, gone)
    for _, one in ipairs(served) do
      call('ZREMRANGEBYLEX', base .. ':lines:' .. priority, '[' .. one.members[1], '[' .. one.members[one.served])
    end
    for _, one in ipairs(served) do
      local room, has_more = one.room, one.served < #one.members or (not one.at_end and L.has_jobs(priority, one.group))
      room.left = room.left - one.served
      local is_room = room.until_ms > 0
      if is_room then call('HSET', base .. ':rooms', one.group, string.format('%d %.0f', room.left, room.until_ms)) end
      if not has_more then
        end_wait(priority, one.group, one.next)
      elseif is_room and room.left <= 0 then
        hold(priority, one.group, one.next, room.until_ms)
      else
        next_turns[#next_turns + 1], next_turns[#next_turns + 2] = exact(one.next), one.group
      end
    end
    write('ZADD', base .. ':turns:' .. priority, next_turns)
    -- The virtual time never goes back, also where turns were given back. Where nobody waits it is beyond all turns:
    -- whoever comes next begins beside all others.
    local time = math.max(turns[count], tonumber(call('HGET', base .. ':turn', priority) or 0))
    local ahead = base .. ':ahead:' .. priority
    if #next_turns == 0 and call('EXISTS', base .. ':turns:' .. priority) == 0 then
      time = math.max(time, tonumber(call('ZREVRANGE', ahead, 0, 0, 'WITHSCORES')[2] or 0))
    end
    call('HSET', base .. ':turn', priority, exact(time))
    write('ZREM', ahead, call('ZRANGEBYSCORE', ahead, '-inf', exact(time), 'LIMIT', 0, 2 * count))
  end

  -- Take out of line, otherwise than by a turn, those of these jobs that are there; their ids and run_afters.
  function L.leave(priority, given)
    local ids, run_afters, members, groups = {}, {}, {}, {}
    for i, run_after in ipairs(read('ZMSCORE', base .. ':s:8:' .. priority, given)) do
      if run_after then ids[#ids + 1], run_afters[#run_afters + 1] = given[i], run_after end
    end
    for i, record in ipairs(read('HMGET', base .. ':extra', ids)) do
      local group = L.group_in(record)
      members[i], groups[group] = member(group, run_afters[i], ids[i]), true
    end
    write('ZREM', base .. ':s:8:' .. priority, ids)
    write('ZREM', base .. ':lines:' .. priority, members)
    for group in pairs(groups) do
      local turn = not L.has_jobs(priority, group) and call('ZSCORE', base .. ':turns:' .. priority, group)
      if turn then end_wait(priority, group, tonumber(turn)) end
    end
    return ids, run_afters
  end

  -- A job that was handed out is requeued: its group is not charged for it.
  function L.give_back(priority, record)
    local group = L.group_in(record)
    if group == '' then return end
    local weight = rule(group, call('HGET', base .. ':rules', group))
    for _, index in ipairs({':turns:', ':ahead:'}) do
      if call('ZSCORE', base .. index .. priority, group) then
        call('ZINCRBY', base .. index .. priority, exact(-1 / weight), group)
      end
    end
  end

  return L
end
