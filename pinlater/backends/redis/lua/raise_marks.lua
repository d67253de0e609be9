-- Let marks count for schedules that have none, or a lower one.
-- KEYS     1 ROOT
-- ARGV     per schedule: the name of its config entry, mark
-- RETURNS  0
-- BOUND    the schedules given
for at = 1, #ARGV, 2 do
  local mark = redis.call('HGET', KEYS[1] .. ':fired', ARGV[at])
  if not mark or mark < ARGV[at + 1] then redis.call('HSET', KEYS[1] .. ':fired', ARGV[at], ARGV[at + 1]) end
end
return 0
