-- All that is known of jobs whose state and run_after are known, as eight values per job:
-- value (with or without body), changed or '', claim or '', expiry or '', finished_at or '', link or '', extra or '', and
-- of one that waits the head of its chain or '': as such a head a successor in no chain has the running job, and that has it.
-- `state_of(i)` and `emit(i, ...)` work on positions in `ids`; `emit` answers false to stop.
-- Returns how many of the ids were read: a caller with large values goes on behind them in a call of its own.
-- BOUND: SLICE_BYTES of values in all, and the one that goes beyond; PAGE values at a time.
local PAGE, SLICE_BYTES = 64, $SLICE_BYTES

-- A job of the same queue as the head of a chain.
local function as_head(root, base, id, priority)
  return pack($CHAIN_HEAD, 0, 0) .. member_of(sub(base, #root + 4), id, priority)
end

-- The head of the chain that a job is in, where it waits for that; or the running job whose successor it is.
local function waits_behind(root, base, id, extra)
  local e = extra_of(extra)
  if e.serialize ~= '' then
    local head = redis.call('HGET', root .. ':heads', e.serialize)
    return head and sub(head, 10, 17) ~= id and head or ''
  end
  local entry = e.dedupe ~= '' and redis.call('HGET', base .. ':keys', dedupe_name(e))
  if not entry or successor_of(entry) ~= id then return '' end
  local _, _, priority = unpack_record($KEY_ENTRY, entry, 9)
  return as_head(root, base, sub(entry, 1, 8), priority)
end

-- The successor of a job in progress.
local function newer_than(root, base, id, extra)
  local e = extra_of(extra)
  local entry = e.dedupe ~= '' and redis.call('HGET', base .. ':keys', dedupe_name(e))
  if not entry or sub(entry, 1, 8) ~= id or not successor_of(entry) then return '' end
  return as_head(root, base, successor_of(entry))
end

local function describe(root, base, ids, state_of, emit)
  local any_extra = redis.call('EXISTS', base .. ':extra') == 1
  local first, any_link, read_bytes = 1, redis.call('EXISTS', base .. ':links') == 1, 0
  while first <= #ids and read_bytes < SLICE_BYTES do
    local last = first - 1
    while last < #ids and last - first < PAGE - 1 and read_bytes < SLICE_BYTES do
      last = last + 1
      read_bytes = read_bytes + redis.call('HSTRLEN', base .. ':jobs', ids[last])
    end
    local values = redis.call('HMGET', base .. ':jobs', unpack(ids, first, last))
    local changed = redis.call('HMGET', base .. ':changed', unpack(ids, first, last))
    local claims = redis.call('HMGET', base .. ':claims', unpack(ids, first, last))
    local links = any_link and redis.call('HMGET', base .. ':links', unpack(ids, first, last)) or {}
    local extras = any_extra and redis.call('HMGET', base .. ':extra', unpack(ids, first, last)) or {}
    for i = first, last do
      local at, state = i - first + 1, state_of(i)
      local expiry = state == 1 and redis.call('ZSCORE', base .. ':expiry', ids[i]) or ''
      local has_ended = state >= 2 and state ~= WAITING and state ~= IN_LINE
      local finished = has_ended and redis.call('ZSCORE', base .. ':ended:' .. math.min(state, 3), ids[i])
      if state == 3 and not finished then finished = redis.call('ZSCORE', base .. ':dead', ids[i]) end
      local change, claim, link = changed[at] or '', claims[at] or '', links[at] or ''
      local extra = extras[at] or ''
      local head = state == WAITING and extra ~= '' and waits_behind(root, base, ids[i], extra) or ''
      if state == 1 and extra ~= '' and is_to_stop(extra) then head = newer_than(root, base, ids[i], extra) end
      if extra ~= '' and is_flagged(byte(extra, $EXTRA_FLAGS_AT), TAGGED) then
        local tags = redis.call('HGET', base .. ':tagged', ids[i]) or ''
        extra = extra .. tags .. pack($TAG_BYTES, #tags)
      end
      if not emit(i, values[at], change, claim, expiry, finished or '', link, extra, head) then return #ids end
    end
    first = last + 1
  end
  return first - 1
end

-- A value without its body; a reference stays, since it says where the body is.
local function bodiless(value)
  local _, _, priority, status_bytes = unpack_record(HEAD, value)
  if priority >= TIERED then return value end
  return sub(value, 1, $HEAD_BYTES + status_bytes)
end
