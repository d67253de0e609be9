-- Strike references off those that were dropped.
-- KEYS     1 ROOT
-- ARGV     references
-- RETURNS  how many were there
-- BOUND    those given
--#include many
write('SREM', KEYS[1] .. ':dropped', ARGV)
return #ARGV
