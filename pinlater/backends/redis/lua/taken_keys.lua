-- The live jobs that have the dedupe keys of jobs that ended.
-- KEYS     1 ROOT   2 BASE
-- ARGV     per job: priority, id
-- RETURNS  per job {queue, the entry of its key}, or nothing of it
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include keys
--#include links
local root, base, call, answer = KEYS[1], KEYS[2], redis.call, {}
local any_extra = apart(base)
for at = 1, #ARGV, 2 do
  local id, found = ARGV[at + 1], {}
  local record = any_extra and call('HGET', base .. ':extra', id)
  local e = record and extra_of(record)
  if e and e.priority == tonumber(ARGV[at]) and e.dedupe ~= '' then
    local origin = is_flagged(e.flags, HISTORY) and string.match((linked(base, id)), '^[^:]+')
    local entry = taken_by(origin and root .. ':q:' .. origin or base, e, id)
    if entry then found = {origin or '', entry} end
  end
  answer[#answer + 1] = found
end
return answer
