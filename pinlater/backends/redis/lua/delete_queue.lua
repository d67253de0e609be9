-- Delete a queue with all its jobs; Redis frees their memory in the background.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 the lowest possible priority (the highest number)
-- RETURNS  1 deleted, 0 there was none
-- BOUND    the number of possible priorities
local root, base, queue = KEYS[1], KEYS[2], ARGV[1]
if redis.call('HDEL', root .. ':queues', queue) == 0 then return 0 end
redis.call('ZREM', root .. ':claimed', queue)
redis.call('ZREM', root .. ':ended:2', queue)
redis.call('ZREM', root .. ':ended:3', queue)
local keys = {
  base .. ':jobs', base .. ':changed', base .. ':claims', base .. ':expiry', base .. ':ended:2', base .. ':ended:3',
}
for priority = 1, tonumber(ARGV[2]) do
  for state = 0, 3 do keys[#keys + 1] = base .. ':s:' .. state .. ':' .. priority end
end
redis.call('UNLINK', unpack(keys))
return 1
