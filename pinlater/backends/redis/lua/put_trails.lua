-- Give jobs that came from another store the trails that they had there.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   then per job: priority, id, the record of its attempts, its log lines
-- RETURNS  one character per job: 1 done, 0 it is not there, or has a trail
-- BOUND    the jobs given
--#include many
--#include layout
--#include trails
local base, outcome = KEYS[2], {}
for at = 2, #ARGV, 4 do
  local priority, id, is_there = ARGV[at], ARGV[at + 1], false
  for state = 0, 6 do is_there = is_there or redis.call('ZSCORE', base .. ':s:' .. state .. ':' .. priority, id) end
  local fits = is_there and redis.call('HEXISTS', base .. ':trails', id) == 0
  if fits then put_trails(KEYS[1], base, ARGV[1], {id}, {ARGV[at + 2]}, {ARGV[at + 3]}) end
  outcome[#outcome + 1] = fits and '1' or '0'
end
return table.concat(outcome)
