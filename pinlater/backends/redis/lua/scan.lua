-- Jobs of these states by run_after, newest first, then by id, oldest first, behind a place in that order; or those of a
-- tag, by id, newest first.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 lowest   4 highest run_after (as ZRANGEBYSCORE takes them)   5 limit
--          6 run_after and 7 id of the place to go on from, or '' and ''   8 with body (2: the first however large, 1, or 0)
--          9 max_bytes   10 tag, or ''
--          11.. priorities
-- RETURNS  first 1 where others may follow within the limit, else 0, or with a tag the id behind which they may; then per
--          job as lookup.lua, but the place is always 0; nil: no such queue
-- BOUND    limit jobs of each priority, or TAGGED_PAGES pages of jobs of the tag; SLICE_BYTES of values; bodies up to
--          max_bytes
--#include many
--#include layout
--#include size
--#include extra
--#include describe
local base, call = KEYS[2], redis.call
local low, high, limit, after, after_id = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local queue_entry = call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local states = sub(queue_entry, -1) == '$GROUPS_MARK' and ARGV[2] or string.gsub(ARGV[2], '8', '')

-- Ids are compared as numbers: Lua compares text by the locale.
local function number(id) return (unpack_record($ID, id)) end

-- The rank of the first member with run_after `after` and an id over `after_id`, and how many there are.
local function rest_of_place(key)
  local from = call('ZCOUNT', key, '-inf', '(' .. after)
  local to = from + call('ZCOUNT', key, after, after)
  local bottom, top = from, to
  while bottom < top do
    local middle = math.floor((bottom + top) / 2)
    if number(call('ZRANGE', key, middle, middle)[1]) > after_id then top = middle else bottom = middle + 1 end
  end
  return bottom, to - bottom
end

-- Up to `limit` {id, run_after, number} of one priority, in order.
local function ordered(key)
  local list = {}
  if after ~= '' then
    local rank, n = rest_of_place(key)
    if n > 0 then
      for i, id in ipairs(call('ZRANGE', key, rank, rank + math.min(n, limit) - 1)) do
        list[i] = {id, after, tonumber(after)}
      end
    end
  end
  local wanted = limit - #list
  if wanted == 0 then return list end
  local found = call('ZREVRANGEBYSCORE', key, high, low, 'WITHSCORES', 'LIMIT', 0, wanted)
  local at, n = 1, #found
  while at <= n do
    local score, last = found[at + 1], at
    while found[last + 3] == score do last = last + 2 end
    local size = (last - at) / 2 + 1
    if last + 1 == n and n == 2 * wanted then  -- cut off: of equal ones the youngest were found, the oldest are wanted
      for _, id in ipairs(call('ZRANGEBYSCORE', key, score, score, 'LIMIT', 0, size)) do
        list[#list + 1] = {id, score, tonumber(score)}
      end
    else
      for i = last, at, -2 do list[#list + 1] = {found[i], score, tonumber(score)} end
    end
    at = last + 2
  end
  return list
end

-- Up to `limit` jobs of a tag, whose entries are read in order, whatever they are like; and where to go on, or 0.
local TAGGED_PAGE, TAGGED_PAGES = 500, 10
local function tagged(tag)
  local list, wanted = {}, {}
  for p = 11, #ARGV do wanted[tonumber(ARGV[p])] = true end
  local lowest = sub(low, 1, 1) == '(' and tonumber(sub(low, 2)) + 1 or -math.huge
  local highest = high == '+inf' and math.huge or tonumber(high)
  local from, id_at, id = '[' .. tag .. '\0', #tag + 2, nil
  local to = after ~= '' and '(' .. tag .. '\0' .. pack($ID, after_id) or '(' .. tag .. '\1'
  for _ = 1, TAGGED_PAGES do
    local members = call('ZREVRANGEBYLEX', base .. ':tags', to, from, 'LIMIT', 0, TAGGED_PAGE)
    local of_priority, places = {}, {}
    for i, member in ipairs(members) do
      local priority = byte(member, id_at + 8)
      id = sub(member, id_at, id_at + 7)
      if wanted[priority] then
        of_priority[priority] = of_priority[priority] or {}
        table.insert(of_priority[priority], id)
        places[id] = i
      end
    end
    local found = {}
    for priority, ids in pairs(of_priority) do
      for state in string.gmatch(states, '%d') do
        for i, score in ipairs(read('ZMSCORE', base .. ':s:' .. state .. ':' .. priority, ids)) do
          local time = score and tonumber(score)
          if time and time >= lowest and time <= highest then
            found[places[ids[i]]] = {ids[i], score, time, tonumber(state)}
          end
        end
      end
    end
    for i = 1, #members do
      if found[i] then list[#list + 1] = found[i] end
      if #list == limit then return list, list[limit][1] end
    end
    if #members < TAGGED_PAGE then return list, 0 end
    to = '(' .. tag .. '\0' .. id
  end
  return list, id
end

local all, lists, goes_on = {}, 0, 0
if ARGV[10] ~= '' then all, goes_on = tagged(ARGV[10]) end
for p = 11, ARGV[10] == '' and #ARGV or 0 do
  for state in string.gmatch(states, '%d') do
    local own = ordered(base .. ':s:' .. state .. ':' .. ARGV[p])
    if #own > 0 then lists = lists + 1 end
    for _, job in ipairs(own) do
      job[4] = tonumber(state)
      all[#all + 1] = job
    end
  end
end
if lists > 1 then
  table.sort(all, function(a, b)
    if a[3] ~= b[3] then return a[3] > b[3] end
    return number(a[1]) < number(b[1])
  end)
end
local ids, out = {}, {goes_on}
local full, first = ARGV[8] ~= '0' and 1 or 0, ARGV[8] == '2'
for i = 1, math.min(limit, #all) do ids[i] = all[i][1] end
local room = tonumber(ARGV[9])
local function emit(i, value, changed, claim, expiry, finished, link, extra, head)
  if not value then return true end
  local n, short = #out, bodiless(value)
  if full == 1 then
    room = room - body_bytes(value)
    if room < 0 and not first then
      out[1] = 0
      return false
    end
    first = false
  end
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = 0, all[i][4], all[i][1], all[i][2], full
  out[n + 6] = full == 1 and value or short
  out[n + 7], out[n + 8], out[n + 9], out[n + 10], out[n + 11] = changed, claim, expiry, finished, link
  out[n + 12], out[n + 13], out[n + 14] = extra, head, ''
  return true
end
local read_ids = describe(KEYS[1], base, ids, function(i) return all[i][4] end, emit)
if read_ids < #ids then out[1] = ARGV[10] ~= '' and ids[read_ids] or 1 end
return out
