-- Some of the references that were dropped, by chance.
-- KEYS     1 ROOT
-- ARGV     1 limit
-- RETURNS  references
-- BOUND    limit
return redis.call('SRANDMEMBER', KEYS[1] .. ':dropped', ARGV[1])
