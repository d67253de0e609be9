-- The slots of keys with an entry or a live job.
-- KEYS     1 ROOT
-- RETURNS  the slots
-- BOUND    the number of slots
return redis.call('HKEYS', KEYS[1] .. ':slots')
