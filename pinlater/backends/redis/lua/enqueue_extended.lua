-- Store jobs that have what few jobs have, in order, each by itself. The first write is refused by a Redis out of memory,
-- and then nothing is stored.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 the lowest id that may be given: now in microseconds   4 who publishes   5 version of the
--          homes, or ''   then per job: what the offer says (OFFER, barrier, schedule), its extra, value
-- RETURNS  per job {outcome, id or '', priority, descriptor of another shard or '', when it may be handed out or ''}; 0 where
--          the homes have changed; nil: no such queue
-- BOUND    the jobs given
--#include many
--#include layout
--#include config
--#include extra
--#include chain
--#include keys
--#include revise
local STORED, KEPT_THAT, REPLACED, REJECTED, NOT_HERE, CHAIN_HERE, DIFFERENT = 0, 1, 2, 3, 4, 5, 6
local ON_REPLACE, ON_REJECT = 1, 2
local IF_KNOWN, TAKES_NO_JOBS = 1, 2
local root, base, queue, now, lowest = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call
if call('HEXISTS', root .. ':queues', queue) == 0 then return false end
if ARGV[5] ~= '' and above((parts(call('HGET', root .. ':records', '@homes'))), ARGV[5]) then return 0 end

-- What is known of all the keys, read at once; what the script adds is noted there as well.
local offers, names, serialize_keys, schedules = {}, {}, {}, {}
for at = 6, #ARGV, 3 do
  local offer, e = {}, extra_of(ARGV[at + 1])
  local barrier_bytes, more_at
  offer.run_after, offer.on_duplicate, offer.flags, offer.fires_at, barrier_bytes, more_at = unpack_record($OFFER, ARGV[at])
  offer.behind, offer.schedule = sub(ARGV[at], more_at, more_at + barrier_bytes - 1), sub(ARGV[at], more_at + barrier_bytes)
  offer.e, offer.extra, offer.value = e, ARGV[at + 1], ARGV[at + 2]
  offers[#offers + 1] = offer
  if e.dedupe ~= '' then
    offer.dedupe_name = dedupe_name(e)
    names[#names + 1] = offer.dedupe_name
  end
  if e.send ~= '' then
    offer.send_name = send_name(e)
    names[#names + 1] = offer.send_name
  end
  if e.serialize ~= '' then serialize_keys[#serialize_keys + 1] = e.serialize end
  if offer.schedule ~= '' then schedules[#schedules + 1] = offer.schedule end
end
local entries, heads, fired = {}, {}, {}
for i, entry in ipairs(read('HMGET', base .. ':keys', names)) do entries[names[i]] = entry end
for i, head in ipairs(read('HMGET', root .. ':heads', serialize_keys)) do heads[serialize_keys[i]] = head end
for i, time in ipairs(read('HMGET', root .. ':fired', schedules)) do fired[schedules[i]] = tonumber(time) end

-- What is to be written: at the end, or before something that has to see it.
local last = tonumber(call('GET', root .. ':last')) or 0
local new, times
local function begin()
  new = {jobs = {}, extra = {}, entries = {}, windows = {}, heads = {}, fired = {}, pending = {}, waiting = {}, expiring = {},
    slots = {}, stored = 0}
end
local function note(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end
local earliest = math.huge
local function carry_out()
  if new.stored > 0 then
    call('SET', root .. ':last', string.format('%.0f', last))
    local shard = call('HGET', root, 'shard')
    if not string.find(shard, ' ', 1, true) then call('HSET', root, 'shard', shard .. ' (version $STORE_VERSION)') end
  end
  write('HSET', base .. ':jobs', new.jobs)
  write('HSET', base .. ':extra', new.extra)
  write('HSET', base .. ':keys', new.entries)
  write('ZADD', root .. ':windows', new.windows)
  write('HSET', root .. ':heads', new.heads)
  write('HSET', root .. ':fired', new.fired)
  for priority, members in pairs(new.pending) do add(base .. ':s:0:' .. priority, members) end
  for priority, members in pairs(new.waiting) do add(base .. ':s:4:' .. priority, members) end
  write('ZADD', base .. ':until', new.expiring)
  count_slots(root, new.slots)
  begin()
end

local function set_entry(name, entry, slot)
  if not entries[name] then new.slots[slot] = (new.slots[slot] or 0) + 1 end
  entries[name] = entry
  note(new.entries, name, entry)
end

-- The answer of an entry: the job that it names, of this shard or another.
local function answer(outcome, entry, ready)
  local id = sub(entry, 1, 8)
  local _, _, priority = unpack_record($KEY_ENTRY, entry, 9)
  if id == '\0\0\0\0\0\0\0\0' then return {outcome, '', 0, sub(entry, $KEY_ENTRY_BYTES + 9), ''} end
  return {outcome, id, priority, '', ready or ''}
end

-- Where a dedupe key is taken.
local function decide(offer, entry)
  local id, until_ms, _, priority = sub(entry, 1, 8), unpack_record($KEY_ENTRY, entry, 9)
  if offer.on_duplicate == ON_REJECT then return answer(REJECTED, entry) end
  if offer.on_duplicate ~= ON_REPLACE or until_ms ~= 0 then return answer(KEPT_THAT, entry) end
  carry_out()  -- it may be of this very call
  local state = pending_state(base, priority, id)
  if not state then return answer(KEPT_THAT, entry) end
  if priority ~= offer.e.priority then return answer(DIFFERENT, entry) end
  local _, attempts, _, status_bytes = unpack_record(HEAD, offer.value)
  local run_after = string.format('%.0f', offer.run_after)
  revise(base, priority, state, id, run_after, sub(offer.value, $HEAD_BYTES + 1 + status_bytes), attempts, now)
  if state == 0 then times[#times + 1] = offer.run_after end
  return answer(REPLACED, entry, state == 0 and run_after)
end

local function store(offer)
  local e = offer.e
  local head = e.serialize ~= '' and heads[e.serialize]
  if head and #new.heads > 0 then carry_out() end  -- it may be among these, and changes at once
  last = math.max(last + 1, lowest)
  local id, slot, run_after = pack($ID, last), e.slot, string.format('%.0f', offer.run_after)
  new.stored = new.stored + 1
  note(new.jobs, id, offer.value)
  note(new.extra, id, offer.extra)
  local job = id .. pack($KEY_ENTRY, 0, slot, e.priority, STORED)
  if offer.dedupe_name then set_entry(offer.dedupe_name, job, slot) end
  if offer.send_name then set_entry(offer.send_name, job, slot) end
  local into = new.pending
  if e.serialize ~= '' then
    new.slots[slot] = (new.slots[slot] or 0) + 1
    local member = member_of(queue, id, e.priority)
    if not head and offer.behind ~= '' then
      head = pack_head(now, BARRIER, offer.behind)
      call('HSET', root .. ':heads', e.serialize, head)
      call('HSET', root .. ':barriers', e.serialize, offer.behind)
    end
    if head then
      into = new.waiting
      heads[e.serialize] = wait_behind(root, e.serialize, head, last, member)
    else
      heads[e.serialize] = pack_head(now, NO_ONE, member)
      note(new.heads, e.serialize, heads[e.serialize])
    end
  end
  into[e.priority] = into[e.priority] or {}
  note(into[e.priority], run_after, id)
  if e.expires > 0 then
    note(new.expiring, string.format('%.0f', e.expires), id)
    earliest = math.min(earliest, e.expires)
  end
  if into == new.waiting then return {STORED, id, e.priority, '', ''} end
  times[#times + 1] = offer.run_after
  return {STORED, id, e.priority, '', run_after}
end

local function take(offer)
  local e = offer.e
  if offer.schedule ~= '' and fired[offer.schedule] and fired[offer.schedule] >= offer.fires_at then
    return {KEPT_THAT, '', 0, '', ''}
  end
  local sent = offer.send_name and entries[offer.send_name]
  if sent then
    local until_ms, _, _, outcome = unpack_record($KEY_ENTRY, sent, 9)
    if until_ms == 0 or until_ms > now then return answer(outcome, sent) end
  end
  local entry, done = offer.dedupe_name and entries[offer.dedupe_name], nil
  local until_ms = entry and unpack_record($KEY_ENTRY, entry, 9)
  if until_ms and (until_ms == 0 or until_ms > now) then
    done = decide(offer, entry)
    -- A resend gets the same answer, for as long as one may come.
    if offer.send_name and (done[1] == KEPT_THAT or done[1] == REPLACED) then
      local _, slot, priority = unpack_record($KEY_ENTRY, entry, 9)
      local is_new = not sent
      local record = pack($KEY_ENTRY, now + SEND_ID_KEPT_MS, e.slot, priority, done[1])
      set_entry(offer.send_name, sub(entry, 1, 8) .. record .. sub(entry, $KEY_ENTRY_BYTES + 9), e.slot)
      note(new.windows, string.format('%.0f', now + SEND_ID_KEPT_MS), queue .. ':' .. offer.send_name)
    end
  else
    if is_flagged(offer.flags, IF_KNOWN) then
      if e.serialize == '' or not heads[e.serialize] then return {NOT_HERE, '', 0, '', ''} end
      if is_flagged(offer.flags, TAKES_NO_JOBS) then return {CHAIN_HERE, '', 0, '', ''} end
    end
    done = store(offer)
  end
  if offer.schedule ~= '' and done[1] <= REPLACED then
    fired[offer.schedule] = offer.fires_at
    note(new.fired, offer.schedule, string.format('%.0f', offer.fires_at))
  end
  return done
end

begin()
times = {}
local outcomes = {}
for i, offer in ipairs(offers) do outcomes[i] = take(offer) end
carry_out()
if earliest < math.huge then call('ZADD', root .. ':until', 'LT', string.format('%.0f', earliest), queue) end
if #times > 0 then
  local ready, due = 0, math.huge
  for _, time in ipairs(times) do
    if time <= now then ready = ready + 1 else due = math.min(due, time) end
  end
  redis.pcall('PUBLISH', base .. ':news', string.format('%s %d %.0f', ARGV[4], ready, due < math.huge and due or 0))
end
return outcomes
