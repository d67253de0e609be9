-- Jobs in progress that would go back to PENDING, but are not to (`ends_cancelled`): they end as CANCELLED. Of each its run_after and what
-- it has as its changed record. Returns whether it was so. The caller has removed it from the jobs in progress.
local function stop(ends, base, queue, priority, id, extra, run_after, changed)
  local root, now = ends.root, string.format('%.0f', ends.now)
  if not ends_cancelled(base, id, extra, true) then return false end
  redis.call('ZADD', base .. ':s:5:' .. priority, run_after, id)
  redis.call('ZADD', base .. ':ended:3', now, id)
  redis.call('ZADD', root .. ':ended:3', 'LT', now, queue)
  redis.call('HSET', base .. ':changed', id, without_attempts(changed))
  add_end(ends, queue, id, extra, true, STAYS)
  tell_ends(root, queue, {id})
  return true
end
