-- The latest time for which each schedule fired.
-- KEYS     1 ROOT
-- ARGV     the schedules
-- RETURNS  per schedule the time or nothing
-- BOUND    the schedules given
--#include many
return read('HMGET', KEYS[1] .. ':fired', ARGV)
