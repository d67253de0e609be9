-- The trails of jobs: BASE:trails has, by id, the bytes of the record of a job's attempts, that record (packed_trails.py)
-- and its log lines. ROOT:trails has the queues in which a job has one; `prune` removes what versions before these left.
local ATTEMPT, ATTEMPT_BYTES, ENDS_JOB = $ATTEMPT, $ATTEMPT_BYTES, $ENDS_JOB
local BEFORE_SOURCE = '^[^:]*:[^:]*:[^:]*:[^:]*:(.*)$'

-- Records and lines of these jobs; '' where there are none.
local function trails_of(base, ids)
  local records, lines = {}, {}
  for i, trail in ipairs(read('HMGET', base .. ':trails', ids)) do
    local bytes = trail and (unpack_record('>I4', trail)) or 0
    records[i], lines[i] = trail and sub(trail, 5, 4 + bytes) or '', trail and sub(trail, 5 + bytes) or ''
  end
  return records, lines
end

local function put_trails(root, base, queue, ids, records, lines)
  if #ids == 0 then return end
  local set = {}
  for i, id in ipairs(ids) do set[2 * i - 1], set[2 * i] = id, pack('>I4', #records[i]) .. records[i] .. lines[i] end
  write('HSET', base .. ':trails', set)
  redis.call('SADD', root .. ':trails', queue)
end

-- A record with one attempt more, and without the first of too many.
local function with_attempt(record, claim, eligible, ended, outcome)
  local claimed, total, kept = (unpack_record(CLAIM, claim)), 0, ''
  local worker = sub(string.match(sub(claim, DESCRIPTOR_AT), BEFORE_SOURCE) or '', 1, $MAX_WORKER_BYTES)
  if record ~= '' then
    total, kept = (unpack_record('>I4', record)), sub(record, 5)
    if total >= $MAX_ATTEMPTS_KEPT then kept = sub(kept, ATTEMPT_BYTES + 1 + byte(kept, ATTEMPT_BYTES)) end
  end
  return pack('>I4', total + 1) .. kept .. pack(ATTEMPT, math.max(0, eligible or 0), claimed, ended, outcome, #worker) .. worker
end

-- Keep the attempts that end now: {id, claim, run_after, outcome} each.
local function keep_attempts(root, base, queue, ending, now)
  local ids = {}
  for i, each in ipairs(ending) do ids[i] = each[1] end
  local records, lines = trails_of(base, ids)
  for i, each in ipairs(ending) do
    records[i] = with_attempt(records[i], each[2], tonumber(each[3]), tonumber(now), each[4])
  end
  put_trails(root, base, queue, ids, records, lines)
end

-- Whether a record has the attempt already with which a job ended.
local function has_end(record, claim, eligible, finished)
  local at, found = 5, false
  while at <= #record do
    local was_eligible, claimed, ended, outcome, bytes = unpack_record(ATTEMPT, record, at)
    found = outcome >= ENDS_JOB and was_eligible == eligible and ended == finished
    found = found and claimed == (unpack_record(CLAIM, claim))
    at = at + ATTEMPT_BYTES + bytes
  end
  return found
end

-- Keep the last attempts of jobs that ended and are retried, where they had one.
local function keep_last_attempts(root, base, queue, ids, eligible, finished, outcome)
  local claims, records, lines = read('HMGET', base .. ':claims', ids), trails_of(base, ids)
  local kept, kept_records, kept_lines = {}, {}, {}
  for i, id in ipairs(ids) do
    local claim, from, to = claims[i], tonumber(eligible[i]), tonumber(finished[i])
    if claim and not has_end(records[i], claim, from, to) then
      local n = #kept + 1
      kept[n], kept_records[n], kept_lines[n] = id, with_attempt(records[i], claim, from, to, outcome), lines[i]
    end
  end
  put_trails(root, base, queue, kept, kept_records, kept_lines)
end

-- Add log lines to those of a job, as lines of the attempt that runs, but for those that are there. The last are kept.
local function add_lines(root, base, queue, id, given)
  local records, logs = trails_of(base, {id})
  local record, log, at, sizes, bytes = records[1], logs[1], 1, {}, 0
  local attempt = record == '' and 1 or (unpack_record('>I4', record)) + 1
  while at <= #given do
    local at_ms, _, size = unpack_record($LINE, given, at)
    local line = pack($LINE, at_ms, attempt, size) .. sub(given, at + $LINE_BYTES, at + $LINE_BYTES + size - 1)
    if not string.find(log, line, 1, true) then log = log .. line end
    at = at + $LINE_BYTES + size
  end
  at = 1
  while at <= #log do
    local _, _, size = unpack_record($LINE, log, at)
    sizes[#sizes + 1], bytes, at = size, bytes + size, at + $LINE_BYTES + size
  end
  local first = 1
  at = 1
  while #sizes - first + 1 > $MAX_LOG_LINES or bytes > $MAX_LOG_BYTES do
    bytes, at, first = bytes - sizes[first], at + $LINE_BYTES + sizes[first], first + 1
  end
  put_trails(root, base, queue, {id}, {record}, {sub(log, at)})
end
