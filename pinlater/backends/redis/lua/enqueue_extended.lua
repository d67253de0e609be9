-- Store jobs that have what few jobs have, in order, each by itself. The first write is refused by a Redis out of memory,
-- and then nothing is stored.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest id that may be given: now in microseconds   4 who publishes, or '': nobody
--          5 version of the homes, or ''   6 number of jobs   then per job: what the offer says (OFFER, barrier, schedule, mark) with its extra
--          (and tags) behind, value   then, where the jobs are alike, what `all_new` takes
-- RETURNS  the first id as a text, where all are PENDING now, the others following it in order; else {a byte
--          per job: its outcome, 8 more where it is PENDING or has another time by this step, the ids of eight bytes,
--          a priority of a byte each, the descriptors of jobs of other shards (id 0) by place, the run_afters by place of
--          those that were not postponed as far as was asked}; 0 where the homes have changed; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include config
--#include extra
--#include references
--#include chain
--#include keys
--#include tags
--#include lines
--#include revise
local STORED, KEPT_THAT, REPLACED, REJECTED, NOT_HERE, CHAIN_HERE, DIFFERENT, RUNS_HERE = 0, 1, 2, 3, 4, 5, 6, 7
local ON_REPLACE, ON_REJECT = 1, 2
local IF_KNOWN, TAKES_NO_JOBS, HAS_RULES = 1, 2, 4
local KEEP_RUNNING, CANCEL_RUNNING = 0, 2
local root, base, queue, now, lowest = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call
if call('HEXISTS', root .. ':queues', queue) == 0 then return false end
local lines
local function groups_known()  -- from the first job with a group on
  if not lines then
    lines = lines_of(base)
    lines.mark(root, queue)
  end
  return lines
end
if homes_changed(root, ARGV[5]) then return 0 end
local function publish(ready, due)
  if ARGV[4] ~= '' then redis.pcall('PUBLISH', base .. ':news', string.format('%s %d %.0f', ARGV[4], ready, due)) end
end

-- As most often: the jobs are alike, in that they have the same priority and run_after, the same kinds of keys, which
-- differ, and nothing else; and none of the keys stands. Then there is nothing to decide, and each hash is written once.
-- ARGV has from `at` on: priority, run_after, number of dedupe names, of serialize keys (of each as many as jobs, or
-- none) and of slots; names, keys, slots, how many of the keys each slot has, and the number of references, where there are
-- any. Returns the first id, or nil.
local function all_new(at, count)
  local priority, run_after = ARGV[at], ARGV[at + 1]
  local name_count, key_count, slot_count = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local names_at, keys_at = at + 5, at + 5 + name_count
  local slots_at = keys_at + key_count
  local function any_stands(hash, first, n)
    if n == 0 then return false end
    local found = call('HMGET', hash, unpack(ARGV, first, first + n - 1))
    for i = 1, n do
      if found[i] then return true end
    end
    return false
  end
  if any_stands(base .. ':keys', names_at, name_count) then return nil end
  if any_stands(root .. ':heads', keys_at, key_count) then return nil end

  local first = math.max((tonumber(call('GET', root .. ':last')) or 0) + 1, lowest)
  call('SET', root .. ':last', string.format('%.0f', first + count - 1))
  raise_version(root, $EXTENDED_VERSION)
  local jobs, of_extra, entries, heads, members, groups, ids, times = {}, {}, {}, {}, {}, {}, {}, {}
  local is_grouped = is_flagged(byte(ARGV[7], $OFFER_BYTES + $EXTRA_FLAGS_AT), GROUPED)
  local is_ready = tonumber(run_after) <= now
  if is_grouped then groups_known() end
  local head, behind_id = pack_head(now, NO_ONE, ''), member_of(queue, '', tonumber(priority))
  local live = string.rep('\0', 8)  -- until when an entry counts, of a job that is live
  for i = 0, count - 1 do
    local a, b, id = 2 * i + 1, 2 * i + 2, pack($ID, first + i)
    local extra = sub(ARGV[7 + 2 * i], $OFFER_BYTES + 1)
    jobs[a], jobs[b] = id, ARGV[8 + 2 * i]
    of_extra[a], of_extra[b] = id, extra
    members[a], members[b] = run_after, id
    if is_grouped and is_ready then ids[i + 1], groups[i + 1], times[i + 1] = id, lines.group_in(extra), run_after end
    if name_count > 0 then
      local slot_and_priority = sub(extra, $EXTRA_SLOT_AT, $EXTRA_SLOT_AT + 2)
      entries[a], entries[b] = ARGV[names_at + i], id .. live .. slot_and_priority .. '\0'
    end
    if key_count > 0 then heads[a], heads[b] = ARGV[keys_at + i], head .. id .. behind_id end
  end
  write('HSET', base .. ':jobs', jobs)
  local tiered = ARGV[slots_at + 2 * slot_count]
  if tiered then references(root).hold(queue, tonumber(tiered)) end
  write('HSET', base .. ':extra', of_extra)
  write('HSET', base .. ':keys', entries)
  write('HSET', root .. ':heads', heads)
  if #ids > 0 then lines.enter(priority, groups, times, ids) else add(base .. ':s:0:' .. priority, members) end
  if slot_count > 0 then
    local counts = call('HMGET', root .. ':slots', unpack(ARGV, slots_at, slots_at + slot_count - 1))
    local set = {}
    for i = 1, slot_count do
      set[2 * i - 1] = ARGV[slots_at + i - 1]
      set[2 * i] = (tonumber(counts[i]) or 0) + tonumber(ARGV[slots_at + slot_count + i - 1])
    end
    write('HSET', root .. ':slots', set)
  end
  publish(is_ready and count or 0, is_ready and 0 or tonumber(run_after))
  return string.format('%.0f', first)
end

local offers = tonumber(ARGV[6])
if #ARGV > 6 + 2 * offers then
  local first = all_new(7 + 2 * offers, offers)
  if first then return first end
end

-- What is known of all the keys, read at once; what the script adds is noted there as well.
local abouts, extras, names, serialize_keys, schedules = {}, {}, {}, {}, {}
local expires_of, slot_of, priority_of, dedupe_of, serialize_of, send_of, tags_of = {}, {}, {}, {}, {}, {}, {}
local is_grouped = {}
local rules_of = {}  -- by what an offer replaces beside on_duplicate
for i = 1, offers do
  local about, extra, flags, _ = ARGV[5 + 2 * i], nil, nil, nil
  local offer_flags, barrier_bytes, schedule_bytes, mark_bytes = byte(about, $OFFER_BYTES - 3, $OFFER_BYTES)
  local extra_at = $OFFER_BYTES + barrier_bytes + schedule_bytes + mark_bytes + 1
  if offer_flags >= HAS_RULES then
    local within, running, by_bytes, by_at = unpack_record($REPLACE_RULES, about, extra_at)
    extra_at = by_at + by_bytes
    rules_of[i] = {within = within, running = running, by = sub(about, by_at, extra_at - 1)}
    rules_of[i].takes_no_jobs = is_flagged(offer_flags, TAKES_NO_JOBS)
  end
  extra = sub(about, extra_at)
  extras[i] = extra
  expires_of[i], _, slot_of[i], priority_of[i], flags, dedupe_of[i], serialize_of[i], send_of[i] = keys_in(extra)
  is_grouped[i] = is_flagged(flags, GROUPED)
  if is_flagged(flags, TAGGED) then
    local last = #extra - 2
    local first = last - unpack_record($TAG_BYTES, extra, last + 1) + 1
    extras[i], tags_of[i] = sub(extra, 1, first - 1), sub(extra, first, last)
  end
  if dedupe_of[i] then names[#names + 1] = dedupe_of[i] end
  if send_of[i] then names[#names + 1] = send_of[i] end
  if serialize_of[i] then serialize_keys[#serialize_keys + 1] = serialize_of[i] end
  if schedule_bytes > 0 then
    local at = $OFFER_BYTES + barrier_bytes
    schedules[#schedules + 1] = sub(about, at + 1, at + schedule_bytes)
  end
end
local entries, heads, fired = {}, {}, {}
for i, entry in ipairs(read('HMGET', base .. ':keys', names)) do entries[names[i]] = entry end
for i, head in ipairs(read('HMGET', root .. ':heads', serialize_keys)) do heads[serialize_keys[i]] = head end
for i, mark in ipairs(read('HMGET', root .. ':fired', schedules)) do fired[schedules[i]] = mark end

-- What is to be written: at the end, or before something that has to see it.
local last = tonumber(call('GET', root .. ':last')) or 0
local times, earliest = {}, math.huge
local new_tagged, new_tags, entering
local new_jobs, new_extras, new_entries, new_windows, new_heads, new_fired, pending, waiting, expiring, slots, stored, tiered
local version = $EXTENDED_VERSION
local function begin()
  new_jobs, new_extras, new_entries, new_windows, new_heads, new_fired = {}, {}, {}, {}, {}, {}
  pending, waiting, expiring, slots, stored, tiered = {}, {}, {}, {}, 0, 0
  new_tagged, new_tags, entering = {}, {}, {}
end
local function note(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end
local function carry_out()
  if stored > 0 then
    call('SET', root .. ':last', string.format('%.0f', last))
    raise_version(root, version)
  end
  write('HSET', base .. ':jobs', new_jobs)
  if tiered > 0 then references(root).hold(queue, tiered) end
  write('HSET', base .. ':extra', new_extras)
  write_tags(base, new_tagged, new_tags)
  write('HSET', base .. ':keys', new_entries)
  write('ZADD', root .. ':windows', new_windows)
  write('HSET', root .. ':heads', new_heads)
  write('HSET', root .. ':fired', new_fired)
  for priority, members in pairs(pending) do add(base .. ':s:0:' .. priority, members) end
  for priority, members in pairs(waiting) do add(base .. ':s:4:' .. priority, members) end
  for priority, own in pairs(entering) do lines.enter(priority, own.groups, own.times, own.ids) end
  write('ZADD', base .. ':until', expiring)
  count_slots(root, slots)
  begin()
end

local function set_entry(name, entry, slot)
  local _, was_slot
  if entries[name] then _, was_slot = unpack_record($KEY_ENTRY, entries[name], 9) end
  if was_slot ~= slot then
    slots[slot] = (slots[slot] or 0) + 1
    if was_slot then slots[was_slot] = (slots[was_slot] or 0) - 1 end
  end
  entries[name] = entry
  note(new_entries, name, entry)
end

-- The answers: codes, ids, priorities; descriptors of other shards, and run_afters that were not asked for, by place.
local codes, ids, priorities, elsewhere, nearer = {}, {}, {}, {}, {}
local PENDING_NOW = 8
local function answer(i, code, id, priority)
  codes[i], ids[i], priorities[i] = string.char(code), id, string.char(priority)
  return code
end
local NO_ID = string.rep('\0', 8)

-- The answer of an entry: the job that it names, of this shard or another.
local function answer_entry(i, code, entry)
  local id, _, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
  if id == NO_ID then elsewhere[#elsewhere + 1] = {i, sub(entry, $KEY_ENTRY_BYTES + 9)} end
  return answer(i, code, id, priority)
end

-- A line into the status of a job in progress, unless that ends with `ending` already. When the job was updated stays: a
-- claim that was not renewed since is known by it.
local function note_running(id, line, ending)
  local claim, changed = call('HGET', base .. ':claims', id), call('HGET', base .. ':changed', id)
  local remaining, allowed, crashes, status = mutable(changed, claim)
  if ending and sub(status, -#ending) == ending then return end
  local updated = unpack_record(changed and CHANGED or CLAIM, changed or claim)
  call('HSET', base .. ':changed', id, pack(CHANGED, updated, remaining, allowed, crashes) .. append(status, line))
end

-- Store the job of an offer; `followed` is the entry of the running job whose successor it is, or nil.
local function store(i, run_after, behind, followed)
  local serialize, slot, priority = serialize_of[i], slot_of[i], priority_of[i]
  local head = serialize and heads[serialize]
  if head and #new_heads > 0 then carry_out() end  -- it may be among these, and changes at once
  last = math.max(last + 1, lowest)
  local id, into = pack($ID, last), pending
  stored = stored + 1
  note(new_jobs, id, ARGV[6 + 2 * i])
  if byte(ARGV[6 + 2 * i], $PRIORITY_AT) >= TIERED then tiered = tiered + 1 end
  note(new_extras, id, extras[i])
  if tags_of[i] then note_tags(new_tagged, new_tags, id, priority, tags_of[i]) end
  if dedupe_of[i] or send_of[i] then
    local job = id .. pack($KEY_ENTRY, 0, slot, priority, STORED)
    local named = followed and sub(followed, 1, $SUCCESSOR_AT - 1) .. pack($SUCCESSOR, last, priority) or job
    if dedupe_of[i] then set_entry(dedupe_of[i], named, slot) end
    if send_of[i] then set_entry(send_of[i], job, slot) end
  end
  if serialize then
    slots[slot] = (slots[slot] or 0) + 1
    local member = member_of(queue, id, priority)
    if not head and behind ~= '' then
      head = pack_head(now, BARRIER, behind)
      call('HSET', root .. ':heads', serialize, head)
      call('HSET', root .. ':barriers', serialize, behind)
    end
    if head then
      into = waiting
      heads[serialize] = wait_behind(root, serialize, head, last, member)
    else
      heads[serialize] = pack_head(now, NO_ONE, member)
      note(new_heads, serialize, heads[serialize])
    end
  end
  if followed then into, version = waiting, $SUCCESSORS_VERSION end
  if is_grouped[i] then groups_known() end
  if is_grouped[i] and into == pending and run_after <= now then
    entering[priority] = entering[priority] or {groups = {}, times = {}, ids = {}}
    local own = entering[priority]
    local n = #own.ids + 1
    own.ids[n], own.times[n], own.groups[n] = id, string.format('%.0f', run_after), lines.group_in(extras[i])
  else
    if not into[priority] then into[priority] = {} end
    note(into[priority], run_after, id)
  end
  if expires_of[i] > 0 then
    note(expiring, expires_of[i], id)
    earliest = math.min(earliest, expires_of[i])
  end
  if into == waiting then return answer(i, STORED, id, priority) end
  times[#times + 1] = run_after
  answer(i, STORED + PENDING_NOW, id, priority)
  return STORED
end

-- A job that is PENDING or WAITING, by its entry, gets what the newer one is to do; nil: it is neither.
local function replace(i, entry, run_after)
  local id, _, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
  local state, due = pending_state(base, priority, id)
  if not state then return nil end
  if priority ~= priority_of[i] then return answer_entry(i, DIFFERENT, entry) end
  if rules_of[i] and rules_of[i].within > 0 then
    local created = unpack_record(HEAD, call('HGET', base .. ':jobs', id))
    local latest = math.max(created + rules_of[i].within, tonumber(due))
    if run_after > latest then
      run_after = latest
      nearer[#nearer + 1] = {i, string.format('%.0f', run_after)}
    end
  end
  local value = ARGV[6 + 2 * i]
  local _, attempts, _, status_bytes = unpack_record(HEAD, value)
  local body, is_reference = sub(value, $HEAD_BYTES + 1 + status_bytes), byte(value, $PRIORITY_AT) >= TIERED
  revise(root, queue, priority, state, id, run_after, body, is_reference, attempts, now)
  if state ~= WAITING then times[#times + 1] = run_after end
  answer_entry(i, REPLACED + (state ~= WAITING and PENDING_NOW or 0), entry)
  return REPLACED
end

-- The dedupe key of an offer is that of a running job without a successor.
local function follow(i, entry, run_after)
  local id, _, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
  if not call('ZSCORE', base .. ':s:1:' .. priority, id) then return answer_entry(i, KEPT_THAT, entry) end
  if not rules_of[i] or rules_of[i].running == KEEP_RUNNING then
    note_running(id, string.format('$NOT_REPLACED%.0f', now) .. '$NOT_REPLACED_END', '$NOT_REPLACED_END')
    return answer_entry(i, KEPT_THAT, entry)
  end
  if rules_of[i].takes_no_jobs then return answer_entry(i, RUNS_HERE, entry) end
  store(i, run_after, '', entry)
  carry_out()
  local shard = string.match(call('HGET', root, 'shard'), '^%w*')
  local name = string.format('%s:s%s:p%d:%.0f', queue, shard, priority_of[i], last)
  note_running(id, string.format('$NEWER_WAITS%.0f$NEWER_WAITS_BEFORE_NAME', now) .. name .. '$NEWER_WAITS_END')
  return STORED
end

-- Where a dedupe key is taken. Returns the code, and the entry of the job that it is about.
local function decide(i, entry, run_after, on_duplicate)
  local until_ms = unpack_record($KEY_ENTRY, entry, 9)
  if on_duplicate == ON_REJECT then return answer_entry(i, REJECTED, entry), entry end
  if on_duplicate ~= ON_REPLACE or until_ms ~= 0 then return answer_entry(i, KEPT_THAT, entry), entry end
  carry_out()  -- it may be of this very call
  local newest = entry_of_successor(entry) or entry
  local code = replace(i, newest, run_after) or follow(i, entry, run_after)
  local stops = rules_of[i] and (rules_of[i].running == CANCEL_RUNNING or code == STORED)
  if stops and code ~= DIFFERENT and code ~= RUNS_HERE then
    local id, _, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
    local by = rules_of[i].running == CANCEL_RUNNING and rules_of[i].by or ''
    local record = call('ZSCORE', base .. ':s:1:' .. priority, id) and stopping_record(base, priority, id, by)
    if record then call('HSET', base .. ':extra', id, record) end
  end
  return code, newest
end

local function take(i)
  local about = ARGV[5 + 2 * i]
  local run_after, on_duplicate, flags, barrier_bytes, schedule_bytes, mark_bytes, more_at = unpack_record($OFFER, about)
  local schedule_at = more_at + barrier_bytes
  local mark_at = schedule_at + schedule_bytes
  local schedule, mark = schedule_bytes > 0 and sub(about, schedule_at, mark_at - 1), nil
  if schedule then mark = sub(about, mark_at, mark_at + mark_bytes - 1) end
  if schedule and fired[schedule] and fired[schedule] >= mark then return answer(i, KEPT_THAT, NO_ID, 0) end
  local dedupe, send = dedupe_of[i], send_of[i]
  local sent, entry = send and entries[send], dedupe and entries[dedupe]
  if sent then
    local until_ms, _, _, outcome = unpack_record($KEY_ENTRY, sent, 9)
    if until_ms == 0 or until_ms > now then return answer_entry(i, outcome, sent) end
  end
  local until_ms, code = entry and unpack_record($KEY_ENTRY, entry, 9) or 1, nil
  if entry and (until_ms == 0 or until_ms > now) then
    local named
    code, named = decide(i, entry, run_after, on_duplicate)
    -- A resend gets the same answer, for as long as one may come.
    if send and (code == KEPT_THAT or code == REPLACED) then
      local id, _, _, priority = sub(named, 1, 8), unpack_record($KEY_ENTRY, named, 9)
      local record = pack($KEY_ENTRY, now + SEND_ID_KEPT_MS, slot_of[i], priority, code)
      set_entry(send, id .. record .. (id == NO_ID and sub(named, $KEY_ENTRY_BYTES + 9) or ''), slot_of[i])
      note(new_windows, now + SEND_ID_KEPT_MS, queue .. ':' .. send)
    end
  else
    if flags % 2 == IF_KNOWN then
      if not (serialize_of[i] and heads[serialize_of[i]]) then return answer(i, NOT_HERE, NO_ID, 0) end
      if is_flagged(flags, TAKES_NO_JOBS) then return answer(i, CHAIN_HERE, NO_ID, 0) end
    end
    code = store(i, run_after, sub(about, more_at, more_at + barrier_bytes - 1))
  end
  if schedule and code <= REPLACED then
    fired[schedule] = mark
    note(new_fired, schedule, mark)
  end
end

begin()
for i = 1, offers do take(i) end
carry_out()
if earliest < math.huge then call('ZADD', root .. ':until', 'LT', string.format('%.0f', earliest), queue) end
if #times > 0 then
  local ready, due = 0, math.huge
  for _, time in ipairs(times) do
    if time <= now then ready = ready + 1 else due = math.min(due, time) end
  end
  publish(ready, due < math.huge and due or 0)
end
return {table.concat(codes), table.concat(ids), table.concat(priorities), elsewhere, nearer}
