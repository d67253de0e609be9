-- Levels of a queue whose jobs age (aged_levels.py): a job counts one priority higher for each so much time since its
-- run_after; at one level the order is by run_after and id. Where groups take turns, a priority is as high as the oldest
-- of its jobs makes it.
-- The functions are made only where jobs age: to make a function costs every call.
local function aging_of(base, levels, now)
  local call, L = redis.call, {}
  local last, aging = unpack_record($AGED_LEVELS, levels)
  L.last, L.priorities, now = last - $AGED, {byte(levels, $AGED_LEVELS_BYTES + 1, -1)}, tonumber(now)

  -- The latest run_after with which a job of a priority is at a level, or a higher one.
  function L.reach(level, priority)
    return string.format('%.0f', now - math.max(0, priority - level) * aging)
  end

  -- Up to `limit` jobs of a priority in a state, by run_after.
  local function by_time(state, priority, reach, limit)
    local key, jobs = base .. ':s:' .. state .. ':' .. priority, {}
    local found = call('ZRANGEBYSCORE', key, '-inf', reach, 'WITHSCORES', 'LIMIT', 0, limit)
    for i = 1, #found, 2 do jobs[#jobs + 1] = {id = found[i], run_after = found[i + 1], at = tonumber(found[i + 1])} end
    return jobs
  end

  local function before(one, other)
    if one.at ~= other.at then return one.at < other.at end
    return unpack_record($ID, one.id) < unpack_record($ID, other.id)
  end

  -- The jobs of a priority in their order, and those that make it as high as it is, the oldest first. `rest`: those
  -- that are not in line yet stand behind the others.
  local function jobs_of(priority, lines, limit, rest)
    local reach = L.reach(L.last, priority)
    local outside = by_time(0, priority, reach, limit)
    if not lines then return outside, outside end
    local jobs, oldest = {}, by_time(8, priority, reach, limit)
    for _, job in ipairs(outside) do oldest[#oldest + 1] = job end
    table.sort(oldest, before)
    local ids, run_afters = lines.first(priority, limit, now, rest)
    for i, id in ipairs(ids) do jobs[i] = {id = id, run_after = run_afters[i], at = tonumber(run_afters[i])} end
    for _, job in ipairs(rest and outside or {}) do jobs[#jobs + 1] = job end
    return jobs, oldest
  end

  -- Up to `limit` jobs as they follow each other.
  function L.order(lines, limit, rest)
    local sources, gone, ordered = {}, {}, {}
    for _, priority in ipairs(L.priorities) do
      local jobs, oldest = jobs_of(priority, lines, limit, rest)
      sources[#sources + 1] = {priority = priority, jobs = jobs, oldest = oldest, next = 1, first = 1}
    end
    while #ordered < limit do
      local best, best_level, best_head
      for _, source in ipairs(sources) do
        local job = source.jobs[source.next]
        local oldest = source.oldest[source.first]
        while oldest and gone[oldest.id] do
          source.first = source.first + 1
          oldest = source.oldest[source.first]
        end
        local head = job and (oldest or job)
        local level = head and math.max(1, source.priority - math.floor((now - head.at) / aging))
        local is_first = not best or level and (level < best_level or level == best_level and before(head, best_head))
        if head and level <= L.last and is_first then
          best, best_level, best_head = source, level, head
        end
      end
      if not best then break end
      local job = best.jobs[best.next]
      best.next = best.next + 1
      gone[job.id], job.priority = true, best.priority
      ordered[#ordered + 1] = job
    end
    return ordered
  end

  return L
end
