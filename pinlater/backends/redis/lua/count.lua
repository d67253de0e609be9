-- Jobs of one state, by run_after.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 states, a digit each   3 from   4 to (run_after, as ZCOUNT takes them)   5.. priorities
-- RETURNS  how many; nil: no such queue
-- BOUND    the priorities given
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local states = string.sub(queue_entry, -1) == '$GROUPS_MARK' and ARGV[2] or string.gsub(ARGV[2], '8', '')
local count = 0
for i = 5, #ARGV do
  for state in string.gmatch(states, '%d') do
    count = count + redis.call('ZCOUNT', KEYS[2] .. ':s:' .. state .. ':' .. ARGV[i], ARGV[3], ARGV[4])
  end
end
return count
