-- Remove pending jobs.
-- KEYS     1 ROOT   2 BASE
-- ARGV     per job: priority, id
-- RETURNS  one character per job: 0 cancelled, 1 in progress, 2 ended, 3 not found
-- BOUND    the jobs given
--#include many
--#include forget
local base, call, outcome = KEYS[2], redis.call, {}
local gone = {}
for at = 1, #ARGV, 2 do
  local priority, id, code = ARGV[at], ARGV[at + 1], '3'
  if call('ZREM', base .. ':s:0:' .. priority, id) == 1 then
    gone[#gone + 1] = id
    code = '0'
  elseif call('ZSCORE', base .. ':s:1:' .. priority, id) then
    code = '1'
  elseif call('ZSCORE', base .. ':s:2:' .. priority, id) or call('ZSCORE', base .. ':s:3:' .. priority, id) then
    code = '2'
  end
  outcome[#outcome + 1] = code
end
forget(base, 0, gone)
return table.concat(outcome)
