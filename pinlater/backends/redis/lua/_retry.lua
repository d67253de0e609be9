-- Jobs of one priority that are FAILED, each given once, back to PENDING. `attempts` '': as many as were allowed.
-- The first write removes.
local function retry(base, priority, ids, attempts, run_after, now)
  if #ids == 0 then return end
  local changed, new, pending, times = read('HMGET', base .. ':changed', ids), {}, {}, {}
  for i, id in ipairs(ids) do
    local _, _, allowed = unpack_record(CHANGED, changed[i])
    local remaining = attempts ~= '' and tonumber(attempts) or allowed
    new[2 * i - 1] = id
    new[2 * i] = pack(CHANGED, now, remaining, allowed, 0) .. sub(changed[i], CHANGED_STATUS_AT)
    pending[2 * i - 1], pending[2 * i] = run_after, id
    times[i] = run_after
  end
  write('ZREM', base .. ':s:3:' .. priority, ids)
  write('ZREM', base .. ':ended:3', ids)
  write('ZREM', base .. ':dead', ids)
  write('HDEL', base .. ':claims', ids)
  write('HSET', base .. ':changed', new)
  write('ZADD', base .. ':s:0:' .. priority, pending)
  notify(base, now, times)
  if redis.call('EXISTS', base .. ':links') == 0 then return end
  for _, id in ipairs(ids) do
    local origin, origin_attempts, moved_to = linked(base, id)
    if moved_to ~= '' then link(base, id, origin, origin_attempts, '') end
  end
end
