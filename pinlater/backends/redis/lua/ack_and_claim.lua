-- End attempts, then hand out eligible jobs of the same queue: ack.lua and claim.lua in one step.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   from 3 on: the acks (_ack.lua), then bounds and the requests (_claim.lua)
-- RETURNS  {one character per ack as ack.lua, what claim.lua returns}; nil: no such queue
-- BOUND    the acks given; limits and max_bytes
--#include many
--#include layout
--#include notify
--#include extra
--#include references
--#include chain
--#include ends
--#include trails
--#include ack
--#include lines
--#include sweep
--#include aging
--#include claim
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
local outcomes, at = ack(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 3)
return {outcomes, claim(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[at], at + 1, queue_entry)}
