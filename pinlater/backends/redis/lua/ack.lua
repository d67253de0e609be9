-- End attempts.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   from 3 on: the acks (_ack.lua)
-- RETURNS  one character per ack: 0 ignored, 1 succeeded, 2 retried, 3 failed
-- BOUND    the acks given
--#include many
--#include layout
--#include notify
--#include ack
return (ack(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 3))
