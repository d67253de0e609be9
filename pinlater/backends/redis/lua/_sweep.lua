-- Set aside PENDING jobs whose time is over (expires_at), so that nothing hands them out: they are WAITING until
-- `expire_jobs` ends them. Returns whether that were all.
-- BOUND    `limit` jobs
local SWEPT = 1000

local function sweep(base, now, limit)
  local due = redis.call('ZRANGEBYSCORE', base .. ':until', '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  if #due == 0 then return true end
  local ids, times, of_priority, expired = {}, {}, {}, {}
  for i = 1, #due, 2 do
    ids[#ids + 1] = due[i]
    times[due[i]] = due[i + 1]
  end
  for i, record in ipairs(read('HMGET', base .. ':extra', ids)) do
    local priority = record and byte(record, $EXTRA_FLAGS_AT - 1)
    if priority then
      of_priority[priority] = of_priority[priority] or {}
      table.insert(of_priority[priority], ids[i])
    end
  end
  write('ZREM', base .. ':until', ids)
  for priority, own in pairs(of_priority) do
    local pending, waiting, out, into = base .. ':s:0:' .. priority, base .. ':s:4:' .. priority, {}, {}
    local at, behind = read('ZMSCORE', pending, own), read('ZMSCORE', waiting, own)
    for i, id in ipairs(own) do
      if at[i] then
        out[#out + 1] = id
        into[#into + 1] = at[i]
        into[#into + 1] = id
      end
      local in_line = not (at[i] or behind[i]) and redis.call('ZSCORE', base .. ':s:8:' .. priority, id)
      if in_line then
        lines_of(base).leave(priority, {id})
        into[#into + 1] = in_line
        into[#into + 1] = id
      end
      if at[i] or behind[i] or in_line then
        expired[#expired + 1] = times[id]
        expired[#expired + 1] = id
      end
    end
    write('ZREM', pending, out)
    write('ZADD', waiting, into)
  end
  write('ZADD', base .. ':expired', expired)
  return #ids < limit
end
