-- The highest mark of each schedule.
-- KEYS     1 ROOT
-- ARGV     the names of their config entries
-- RETURNS  per schedule the mark or nothing
-- BOUND    the schedules given
--#include many
return read('HMGET', KEYS[1] .. ':fired', ARGV)
