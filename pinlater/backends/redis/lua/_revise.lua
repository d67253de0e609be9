-- Change a PENDING job: nil leaves body, run_after or attempts as they are. `state` is 0, 4 or 8; with a new run_after a
-- job leaves its line. The first write adds.
local function revise(root, queue, priority, state, id, run_after, body, is_reference, attempts, now)
  local base = root .. ':q:' .. queue
  local value, changed = redis.call('HGET', base .. ':jobs', id), redis.call('HGET', base .. ':changed', id)
  local _, allowed, _, status_bytes = unpack_record(HEAD, value)
  local remaining, crashes, status = allowed, 0, sub(value, $HEAD_BYTES + 1, $HEAD_BYTES + status_bytes)
  if changed then
    _, remaining, allowed, crashes = unpack_record(CHANGED, changed)
    status = sub(changed, CHANGED_STATUS_AT)
  end
  if attempts then remaining, allowed = attempts, attempts end
  redis.call('HSET', base .. ':changed', id, pack(CHANGED, now, remaining, allowed, crashes) .. status)
  if body then references(root).set_body(queue, id, value, body, is_reference) end
  if run_after and state == IN_LINE then
    lines_of(base).leave(priority, {id})
    state = 0
  end
  if run_after then redis.call('ZADD', base .. ':s:' .. state .. ':' .. priority, run_after, id) end
end

-- The state in which a job is PENDING, and its run_after, or nil: 0, 4 or 8.
local function pending_state(base, priority, id)
  for state = 0, IN_LINE, WAITING do
    local run_after = redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id)
    if run_after then return state, run_after end
  end
end
