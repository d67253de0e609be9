-- Hand out eligible jobs.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   3 bounds (_claim.lua)   from 4 on: the requests
-- RETURNS  per request {ids, run_afters with commas between, values, changed or '', expiries of their own, groups}
--          (_claim.lua); fewer than the requests where the bodies came to SLICE_BYTES; nil: no such queue
-- BOUND    limits and max_bytes
--#include many
--#include layout
--#include lines
--#include sweep
--#include aging
--#include claim
local queue_entry = redis.call('HGET', KEYS[1] .. ':queues', ARGV[1])
if not queue_entry then return false end
return claim(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], 4, queue_entry)
