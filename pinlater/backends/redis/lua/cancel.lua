-- Remove pending jobs; ask those in progress to stop, where somebody says so.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 who asks those in progress to stop, or ''   then per job: priority, id
-- RETURNS  one character per job: 0 cancelled, 1 in progress, 2 ended, 3 not found, 4 in progress and asked to stop
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include lines
--#include references
--#include chain
--#include ends
--#include forget
local root, base, queue, now, by = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local call, outcome, gone = redis.call, {}, {}

local function ask_to_stop(priority, id)
  local record = stopping_record(base, tonumber(priority), id, by)
  if not record then return end
  call('HDEL', base .. ':extra', id)  -- first, since a Redis out of memory refuses to begin with the other
  call('HSET', base .. ':extra', id, record)
end

for at = 4, #ARGV, 2 do
  local priority, id, code = ARGV[at], ARGV[at + 1], '3'
  if call('ZREM', base .. ':s:0:' .. priority, id) == 1 or call('ZREM', base .. ':s:4:' .. priority, id) == 1 then
    gone[#gone + 1] = id
    code = '0'
  elseif call('ZSCORE', base .. ':s:1:' .. priority, id) then
    code = by ~= '' and '4' or '1'
    if by ~= '' then ask_to_stop(priority, id) end
  else
    for _, state in ipairs({2, 3, CANCELLED, REPLAYED}) do
      if call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then code = '2' end
    end
    if code == '3' and call('ZSCORE', base .. ':s:8:' .. priority, id) then
      lines_of(base).leave(priority, {id})
      gone[#gone + 1] = id
      code = '0'
    end
  end
  outcome[#outcome + 1] = code
end
forget(root, queue, 0, gone, now)
return table.concat(outcome)
