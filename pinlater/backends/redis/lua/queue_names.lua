-- KEYS     1 ROOT
-- RETURNS  the queues
-- BOUND    the number of queues
return redis.call('HKEYS', KEYS[1] .. ':queues')
