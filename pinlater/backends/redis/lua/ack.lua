-- End attempts. The first write removes, so a Redis out of memory can be emptied.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 keep succeeded (1 or 0)   4 keep failed (1 or 0)   5 number of kinds
--          then per kind: priority, 1 succeeded or 0 failed or 2 failed for good, retry delay, claim descriptor or '',
--          status to append
--          then which kind each ack is, two bytes each ('' where there is one kind), then the ids, eight
--          bytes each
-- RETURNS  one character per ack: 0 ignored, 1 succeeded, 2 retried, 3 failed
-- BOUND    the acks given
--#include many
--#include records
local root, base, now = KEYS[1], KEYS[2], ARGV[2]
local keep = {[2] = ARGV[3] == '1', [3] = ARGV[4] == '1'}
local kinds, fenced, at, now_number = {}, false, 6, tonumber(now)
local groups, order = {}, {}
for i = 1, tonumber(ARGV[5]) do
  local priority = ARGV[at]
  local group = groups[priority]
  if not group then
    group = {key = base .. ':s:1:' .. priority, priority = priority, ids = {}, places = {}, out = {}, [0] = {}, [2] = {}, [3] = {}}
    groups[priority] = group
    order[#order + 1] = group
  end
  local ending, claim, status = ARGV[at + 1], ARGV[at + 3], ARGV[at + 4]
  kinds[i] = {group, ending, tonumber(ARGV[at + 2]), claim ~= '' and claim, status, ending ~= '1' or status ~= ''}
  fenced = fenced or claim ~= '' or kinds[i][6]
  at = at + 5
end
local which = ARGV[at]
local packed_ids = ARGV[at + 1]
local total = #packed_ids / 8
local only, ids, kind_of, scores = which == '' and kinds[1], {}, {}, {}
for i = 1, total do ids[i] = sub(packed_ids, 8 * i - 7, 8 * i) end
if only then
  scores = read('ZMSCORE', only[1].key, ids)
else
  for i = 1, total do
    local high, low = byte(which, 2 * i - 1, 2 * i)
    local kind = kinds[high * 256 + low + 1]
    local group = kind[1]
    local n = #group.ids + 1
    kind_of[i], group.ids[n], group.places[n] = kind, ids[i], i
  end
  for _, group in ipairs(order) do
    local found = read('ZMSCORE', group.key, group.ids)
    for n, place in ipairs(group.places) do scores[place] = found[n] end
  end
end
local claims = fenced and read('HMGET', base .. ':claims', ids)
local last_claim, holder  -- most jobs of a call come from one claim
local outcome, done, ended_any = {}, {}, false
local finished, gone, freed, new = {[2] = {}, [3] = {}}, {[2] = {}, [3] = {}}, {}, {}
for i = 1, total do
  local id, kind, score, code = ids[i], only or kind_of[i], scores[i], '0'
  if kind[4] and score and claims[i] ~= last_claim then
    last_claim = claims[i]
    holder = sub(last_claim, DESCRIPTOR_AT)
  end
  if score and not done[id] and (not kind[4] or holder == kind[4]) then
    done[id] = true
    ended_any = true
    local group, state = kind[1], 2
    code = '1'
    if kind[6] then
      local claim = claims[i]
      local remaining, allowed, crashes, status = mutable(redis.call('HGET', base .. ':changed', id), claim)
      if kind[2] ~= '1' then
        remaining = kind[2] == '2' and 0 or remaining - 1
        if remaining > 0 then
          state, code = 0, '2'
        else
          state, code = 3, '3'
        end
      end
      if state == 0 or keep[state] then
        new[#new + 1] = id
        new[#new + 1] = pack(CHANGED, now_number, remaining, allowed, crashes) .. cut(status .. kind[5])
      end
    end
    local out = group.out
    out[#out + 1] = id
    if state == 0 then
      local pending = group[0]
      local n = #pending
      pending[n + 1], pending[n + 2] = string.format('%.0f', now_number + kind[3]), id
      freed[#freed + 1] = id
    elseif keep[state] then
      local moved, list = group[state], finished[state]
      local n = #moved
      moved[n + 1], moved[n + 2] = score, id
      n = #list
      list[n + 1], list[n + 2] = now, id
    else
      local list = gone[state]
      list[#list + 1] = id
    end
  end
  outcome[i] = code
end
if ended_any then
  for _, group in ipairs(order) do
    write('ZREM', group.key, group.out)
    write('ZREM', base .. ':expiry', group.out)
    for _, state in ipairs({0, 2, 3}) do write('ZADD', base .. ':s:' .. state .. ':' .. group.priority, group[state]) end
  end
  write('HDEL', base .. ':claims', freed)
  write('HSET', base .. ':changed', new)
  for state = 2, 3 do
    if #finished[state] > 0 then
      write('ZADD', base .. ':ended:' .. state, finished[state])
      redis.call('ZADD', root .. ':ended:' .. state, 'LT', now, ARGV[1])
    end
    for _, key in ipairs({':jobs', ':changed', ':claims'}) do write('HDEL', base .. key, gone[state]) end
  end
end
return table.concat(outcome)
