-- What few jobs have beside the others, in BASE:extra, and the names of their keys; records.py lays it out.
-- flags: it is to stop, or has a successor where nobody asked; its keys are to show alone (a dead letter); it has tags; it
-- has a group
local STOP, HISTORY, TAGGED, GROUPED = 1, 2, $TAGGED, $GROUPED
local WAITING, CANCELLED, REPLAYED, IN_LINE = 4, 5, 6, 8
local KEPT, SEND_ID_KEPT_MS = 9007199254740991, $SEND_ID_KEPT_MS

-- Which of the three there are: jobs with something extra, jobs whose end somebody waits for, and references to bodies.
local function apart(base)
  if redis.call('EXISTS', base .. ':extra', base .. ':watched', base .. ':tiered') == 0 then return false, false, false end
  return redis.call('EXISTS', base .. ':extra') == 1, redis.call('EXISTS', base .. ':watched') == 1,
    redis.call('EXISTS', base .. ':tiered') == 1
end

-- What few jobs have in hashes of its own.
local function remove_apart(base, ids)
  if #ids == 0 or redis.call('EXISTS', base .. ':links', base .. ':trails') == 0 then return end
  write('HDEL', base .. ':links', ids)
  write('HDEL', base .. ':trails', ids)
end

local function is_flagged(flags, flag) return flags % (2 * flag) >= flag end

local function extra_of(record)
  local e, d, s, i, b, at = {}
  e.timeout, e.expires, e.keep_for, e.slot, e.priority, e.flags, d, s, i, b, at = unpack_record($EXTRA, record)
  local dedupe_at = at + 4 + s
  local send_at = dedupe_at + d + 1
  e.serialize, e.dedupe = sub(record, at + 4, dedupe_at - 1), sub(record, dedupe_at, dedupe_at + d - 1)
  e.send, e.by = sub(record, send_at, send_at + i - 1), sub(record, send_at + i, send_at + i + b - 1)
  e.group, at = '', send_at + i + b
  if is_flagged(e.flags, GROUPED) then
    e.group = sub(record, at + 1, at + byte(record, at))
    at = at + 1 + #e.group
  end
  e.rest = sub(record, at)
  return e
end

local function pack_extra(e)
  return pack($EXTRA, e.timeout, e.expires, e.keep_for, e.slot, e.priority, e.flags, #e.dedupe, #e.serialize, #e.send, #e.by)
    .. string.format('d%03d', #e.serialize) .. e.serialize .. e.dedupe .. 'i' .. e.send .. e.by
    .. (e.group ~= '' and string.char(#e.group) .. e.group or '') .. e.rest
end

-- What most need of a record: expires_at, dedupe_for, slot, priority, flags, the name of its dedupe key, its serialize key,
-- the name of its send id; each of these false where there is none.
local function keys_in(record)
  local _, expires, keep_for, slot, priority, flags, d, s, i, _, at = unpack_record($EXTRA, record)
  local send_at = at + 4 + s + d
  return expires, keep_for, slot, priority, flags, d > 0 and sub(record, at, send_at - 1),
    s > 0 and sub(record, at + 4, at + 3 + s), i > 0 and sub(record, send_at, send_at + i)
end

-- The extra record of a job that had none.
local function plain_extra(priority)
  return {
    timeout = 0, expires = 0, keep_for = 0, slot = 0, priority = priority, flags = 0, dedupe = '', serialize = '', send = '',
    by = '', group = '', rest = '',
  }
end

-- What an entry of BASE:keys is called.
local function dedupe_name(e) return string.format('d%03d', #e.serialize) .. e.serialize .. e.dedupe end
local function send_name(e) return 'i' .. e.send end

-- What names a job in a chain.
local function member_of(queue, id, priority) return id .. string.char(priority) .. queue end

-- How many keys with an entry or a live job there are of each slot.
local function count_slots(root, deltas)
  local slots, set, gone = {}, {}, {}
  for slot, delta in pairs(deltas) do
    if delta ~= 0 then slots[#slots + 1] = slot end
  end
  for i, count in ipairs(read('HMGET', root .. ':slots', slots)) do
    count = (tonumber(count) or 0) + deltas[slots[i]]
    if count > 0 then set[#set + 1], set[#set + 2] = slots[i], count else gone[#gone + 1] = slots[i] end
  end
  write('HDEL', root .. ':slots', gone)
  write('HSET', root .. ':slots', set)
end

local function is_to_stop(record) return is_flagged(byte(record, $EXTRA_FLAGS_AT), STOP) end

-- What the record of a job becomes that is to stop: at once, where `by` says who asks; else it does not go back to PENDING
-- while it has a successor. nil: nothing is new. Who asked first is named.
local function stopping_record(base, priority, id, by)
  local record = redis.call('HGET', base .. ':extra', id)
  local e = record and extra_of(record) or plain_extra(priority)
  local is_known = is_flagged(e.flags, STOP)
  if is_known and (e.by ~= '' or by == '') then return nil end
  if not is_known then e.flags = e.flags + STOP end
  e.by = by
  return pack_extra(e)
end

-- The id and priority of the successor that an entry of BASE:keys has, or nil.
local function successor_of(entry)
  if #entry < $SUCCESSOR_AT or sub(entry, 1, 8) == string.rep('\0', 8) then return nil end
  return sub(entry, $SUCCESSOR_AT, $SUCCESSOR_AT + 7), byte(entry, $SUCCESSOR_AT + 8)
end

-- An entry as that of its successor alone.
local function entry_of_successor(entry)
  local id, priority = successor_of(entry)
  local _, slot = unpack_record($KEY_ENTRY, entry, 9)
  return id and id .. pack($KEY_ENTRY, 0, slot, priority, 0)
end

-- Whether a job in progress that does not succeed ends as CANCELLED: it was asked to stop, or would go back to PENDING
-- (`goes_on`) while its successor waits. `record` may be nil.
local function ends_cancelled(base, id, record, goes_on)
  if not record or not is_to_stop(record) then return false end
  local e = extra_of(record)
  if e.by ~= '' then return true end
  local entry = goes_on and e.dedupe ~= '' and redis.call('HGET', base .. ':keys', dedupe_name(e))
  return entry and sub(entry, 1, 8) == id and successor_of(entry) ~= nil
end

-- Jobs that are PENDING again end when their time is over: they come back into the index of these times.
local function expire_again(root, base, queue, ids)
  local members, earliest = {}, math.huge
  for i, record in ipairs(read('HMGET', base .. ':extra', ids)) do
    local _, expires = unpack_record($EXTRA, record)
    if expires > 0 then
      members[#members + 1], members[#members + 2] = string.format('%.0f', expires), ids[i]
      earliest = math.min(earliest, expires)
    end
  end
  write('ZADD', base .. ':until', members)
  if earliest < math.huge then redis.call('ZADD', root .. ':until', 'LT', string.format('%.0f', earliest), queue) end
end

-- A changed record, with no attempts remaining: that of a job which ends because it was to stop.
local function without_attempts(changed) return sub(changed, 1, 8) .. pack('>I4', 0) .. sub(changed, 13) end
