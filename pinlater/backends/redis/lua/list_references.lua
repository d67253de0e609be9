-- A page of all references: those of the queues that have some, of what deleted queues have left, those that jobs share,
-- and those that were dropped.
-- KEYS     1 ROOT
-- ARGV     1 where the page begins: section|name|cursor, or '' for the beginning   2 about how many are looked at
-- RETURNS  {where the next page begins, or '', references}
-- BOUND    2, or the few of a small hash; values of up to 1 MiB each are passed over
--#include many
--#include layout
--#include references
local root, count, call = KEYS[1], tonumber(ARGV[2]), redis.call
local R = references(root)
local LEFT = {'jobs', 'results'}

local function sorted(key)
  local names = call('SMEMBERS', key)
  table.sort(names)
  return names
end

-- The name behind this one; '': the first.
local function behind(names, name)
  for _, each in ipairs(names) do
    if name == '' or each > name then return each end
  end
end

local function left_behind()
  local names = {}
  for _, kind in ipairs(LEFT) do
    for _, name in ipairs(call('SMEMBERS', root .. ':orphans:' .. kind)) do names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local section, name, cursor = string.match(ARGV[1], '^(%a+)|(.*)|(%d+)$')
if not section then
  section, name, cursor = 'jobs', behind(sorted(root .. ':tiered'), ''), '0'
  if not name then section, name = 'left', behind(left_behind(), '') end
  if not name then section, name = 'shared', '' end
end

local function scanned(command, key, step, from)
  local page, list = call(command, key, cursor, 'COUNT', count), {}
  for i = step, #page[2], step do list[#list + 1] = from(page[2][i]) end
  return page[1], list
end
local function itself(member) return member end

local next_cursor, found
if section == 'jobs' then
  next_cursor, found = scanned('HSCAN', root .. ':q:' .. name .. ':jobs', 2, R.of_job)
elseif section == 'results' then
  next_cursor, found = scanned('HSCAN', root .. ':q:' .. name .. ':results', 2, R.of_result)
elseif section == 'left' then
  local of_jobs = string.find(name, ':jobs:', 1, true)
  next_cursor, found = scanned('HSCAN', root .. ':orphan:' .. name, 2, of_jobs and R.of_job or R.of_result)
elseif section == 'shared' then
  local pairs_of = call('HSCAN', root .. ':shared', cursor, 'COUNT', count)
  next_cursor, found = pairs_of[1], {}
  for i = 1, #pairs_of[2], 2 do found[#found + 1] = pairs_of[2][i] end
else
  next_cursor, found = scanned('SSCAN', root .. ':dropped', 1, itself)
end

if next_cursor ~= '0' then return {section .. '|' .. name .. '|' .. next_cursor, found} end
if section == 'jobs' then return {'results|' .. name .. '|0', found} end
if section == 'results' then
  local following = behind(sorted(root .. ':tiered'), name)
  if following then return {'jobs|' .. following .. '|0', found} end
  section, name = 'left', ''
end
if section == 'left' then
  local following = behind(left_behind(), name)
  if following then return {'left|' .. following .. '|0', found} end
  return {'shared||0', found}
end
return {section == 'shared' and 'dropped||0' or '', found}
