-- Remove jobs that were just taken out of their state's zset. What few jobs have goes with them; `stays` says what is
-- left of their keys (_ends.lua).
local function forget(root, queue, state, ids, now, stays)
  if #ids == 0 then return end
  local base, is_live = root .. ':q:' .. queue, state < 2 or state == WAITING or state == IN_LINE
  local any_extra, any_watched, any_tiered = apart(base)
  local R = any_tiered and references(root)
  local dropped = R and R.among(base .. ':jobs', ids, R.of_job)
  local ends = any_extra and new_ends(root, now)
  for i, record in ipairs(any_extra and read('HMGET', base .. ':extra', ids) or {}) do
    if record then add_end(ends, queue, ids[i], record, is_live, stays or NOTHING) end
  end
  for _, hash in ipairs({':jobs', ':changed', ':undelivered'}) do write('HDEL', base .. hash, ids) end
  remove_apart(base, ids)
  if state ~= 0 and state ~= WAITING and state ~= IN_LINE then
    write('HDEL', base .. ':claims', ids)
    if state == 1 then
      write('ZREM', base .. ':expiry', ids)
    else
      write('ZREM', base .. ':ended:' .. math.min(state, 3), ids)
      if state >= 3 then write('ZREM', base .. ':dead', ids) end
    end
  end
  if not stays and not is_live and redis.call('EXISTS', base .. ':results') == 1 then
    for _, each in ipairs(R and R.among(base .. ':results', ids, R.of_result) or {}) do
      dropped[#dropped + 1] = each
    end
    write('HDEL', base .. ':results', ids)
  end
  if R then R.release(queue, dropped) end
  if any_extra then finish_ends(ends) end
  if any_watched then tell_ends(root, queue, ids) end
end
