-- The trails of jobs.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then per job: priority, id
-- RETURNS  per job that is there: its place (from 0), state, run_after, claim or '', when it ended or '', the record of its
--          attempts, its log lines
-- BOUND    the jobs given
--#include many
--#include layout
--#include trails
local base, out = KEYS[2], {}
local WAITING, ended_at = 4, {[2] = {':ended:2'}, [3] = {':ended:3', ':dead'}, [5] = {':ended:3'}, [6] = {':ended:3'}}
for at = 2, #ARGV, 2 do
  local priority, id = ARGV[at], ARGV[at + 1]
  for state = 0, 6 do
    local run_after = redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id)
    if run_after then
      local finished, n = false, #out
      for _, index in ipairs(ended_at[state] or {}) do finished = finished or redis.call('ZSCORE', base .. index, id) end
      local records, lines = trails_of(base, {id})
      out[n + 1], out[n + 2], out[n + 3] = (at - 2) / 2, state, run_after
      out[n + 4], out[n + 5] = state ~= 0 and state ~= WAITING and redis.call('HGET', base .. ':claims', id) or '', finished or ''
      out[n + 6], out[n + 7] = records[1], lines[1]
    end
  end
end
return out
