-- Notify the servers that wait for jobs of a queue, where they can be (see _notify.lua).
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 what to publish (pubsub.py)
-- RETURNS  1
-- BOUND    one message
redis.pcall('PUBLISH', KEYS[2] .. ':news', ARGV[1])
return 1
