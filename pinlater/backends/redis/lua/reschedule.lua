-- Change PENDING jobs, in order.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   then per job: priority, id, run_after or '', attempts or '', when it was last updated or '',
--          1 with a new body, 2 with a reference, or 0, body
-- RETURNS  one character per job: 0 changed, 1 in progress, 2 ended, 3 not found, 4 updated at another time
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include references
--#include lines
--#include revise
local base, now, call, outcome, times = KEYS[2], tonumber(ARGV[2]), redis.call, {}, {}

local function code_of(priority, id)
  for state, code in pairs({[1] = '1', [2] = '2', [3] = '2', [CANCELLED] = '2', [REPLAYED] = '2'}) do
    if call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) then return code end
  end
  return '3'
end

for at = 3, #ARGV, 7 do
  local priority, id, run_after, updated = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 4]
  local state = pending_state(base, priority, id)
  local code = state and '0' or code_of(priority, id)
  if state and updated ~= '' then
    local changed = call('HGET', base .. ':changed', id)
    local known = unpack_record('>I8', changed or call('HGET', base .. ':jobs', id))
    if known ~= tonumber(updated) then code = '4' end
  end
  if code == '0' then
    local body, attempts = ARGV[at + 5] ~= '0' and ARGV[at + 6] or nil, tonumber(ARGV[at + 3])
    local is_reference = ARGV[at + 5] == '2'
    revise(KEYS[1], ARGV[1], priority, state, id, run_after ~= '' and run_after, body, is_reference, attempts, now)
    if state ~= WAITING and run_after ~= '' then times[#times + 1] = run_after end
  end
  outcome[#outcome + 1] = code
end
notify(base, now, times)
return table.concat(outcome)
