-- Whether jobs of serialize keys are live.
-- KEYS     1 ROOT
-- ARGV     the keys
-- RETURNS  one character per key: 1 or 0
-- BOUND    the keys given
--#include many
local answer = {}
for i, head in ipairs(read('HMGET', KEYS[1] .. ':heads', ARGV)) do answer[i] = head and '1' or '0' end
return table.concat(answer)
