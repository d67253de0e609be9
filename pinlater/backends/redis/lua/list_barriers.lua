-- Some of the barriers.
-- KEYS     1 ROOT
-- ARGV     1 limit
-- RETURNS  {serialize key, shard id, ...}
-- BOUND    limit
return redis.call('HRANDFIELD', KEYS[1] .. ':barriers', ARGV[1], 'WITHVALUES')
