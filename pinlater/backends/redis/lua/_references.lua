-- References to bodies (model/body_reference.py), which stand in values and results in place of the bodies themselves;
-- TIERED in the priority marks one. BASE:tiered counts those of a queue, ROOT:shared how many further jobs share one: an
-- entry stays at 0 until its reference is dropped, so that who lists them all finds one that wanders meanwhile.
-- What there is to do about them is made only where a script meets one: to make a function costs every call.
local function references(root)
  local call, R = redis.call, {}

  -- The reference that a job's value has, or nil; that of a result.
  function R.of_job(value)
    if byte(value, $PRIORITY_AT) < TIERED then return nil end
    local _, _, _, status_bytes = unpack_record(HEAD, value)
    return sub(value, $HEAD_BYTES + status_bytes + 1)
  end
  function R.of_result(result)
    return byte(result, $RESULT_BYTES) >= TIERED and sub(result, $RESULT_BYTES + 1) or nil
  end

  -- Those among a queue's values or results; what is large is none, and is not read.
  local LARGEST = $HEAD_BYTES + 4 * $MAX_STATUS_CHARS + 300
  function R.among(key, ids, from)
    local found = {}
    for _, id in ipairs(ids) do
      local value = call('HSTRLEN', key, id) <= LARGEST and call('HGET', key, id)
      found[#found + 1] = value and from(value) or nil
    end
    return found
  end

  -- Jobs of a queue have so many more.
  function R.hold(queue, count)
    if count == 0 then return end
    call('INCRBY', root .. ':q:' .. queue .. ':tiered', count)
    call('SADD', root .. ':tiered', queue)
    raise_version(root, $REFERENCES_VERSION)
  end

  -- A further job has what another one has.
  function R.share(reference) call('HINCRBY', root .. ':shared', reference, 1) end

  -- Jobs have these no more: each goes from one job to the others that share it, or is dropped.
  function R.drop(dropped)
    for _, reference in ipairs(dropped) do
      if (tonumber(call('HGET', root .. ':shared', reference)) or 0) > 0 then
        call('HINCRBY', root .. ':shared', reference, -1)
      else
        call('HDEL', root .. ':shared', reference)
        call('SADD', root .. ':dropped', reference)
      end
    end
  end
  function R.release(queue, dropped)
    if #dropped == 0 then return end
    local key = root .. ':q:' .. queue .. ':tiered'
    R.drop(dropped)
    if call('DECRBY', key, #dropped) <= 0 then
      call('DEL', key)
      call('SREM', root .. ':tiered', queue)
    end
  end

  -- Another body for a job, whose value it is told. A reference that is given to its own job again stays.
  function R.set_body(queue, id, value, body, is_reference)
    local _, _, priority, status_bytes = unpack_record(HEAD, value)
    local was = R.of_job(value)
    local level = string.char(priority % TIERED + (is_reference and TIERED or 0))
    local head = sub(value, 1, $PRIORITY_AT - 1) .. level .. sub(value, $PRIORITY_AT + 1, $HEAD_BYTES + status_bytes)
    call('HSET', root .. ':q:' .. queue .. ':jobs', id, head .. body)
    if is_reference and was == body then return end
    if is_reference then R.hold(queue, 1) end
    if was then R.release(queue, {was}) end
  end
  return R
end
