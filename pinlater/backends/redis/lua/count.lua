-- Jobs of one state, by run_after.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 from   4 to (run_after, as ZCOUNT takes them)   5.. priorities
-- RETURNS  how many; nil: no such queue
-- BOUND    the priorities given
if redis.call('HEXISTS', KEYS[1] .. ':queues', ARGV[1]) == 0 then return false end
local count = 0
for i = 5, #ARGV do
  for state in string.gmatch(ARGV[2], '%d') do
    count = count + redis.call('ZCOUNT', KEYS[2] .. ':s:' .. state .. ':' .. ARGV[i], ARGV[3], ARGV[4])
  end
end
return count
