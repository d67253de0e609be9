-- Jobs in progress to SUCCEEDED where the claim matches, with the descriptor of what was made of them elsewhere.
-- KEYS     1 ROOT   2 BASE
-- ARGV     1 queue   2 now   then per job: priority, id, claim descriptor, descriptor of the copy
-- RETURNS  one character per job: 1 done, 0 no match
-- BOUND    the jobs given
--#include many
--#include layout
--#include notify
--#include extra
--#include chain
--#include ends
--#include links
--#include letters
local root, base, now, call = KEYS[1], KEYS[2], ARGV[2], redis.call
local any_extra, any_watched = apart(base)
local outcome, ends = {}, new_ends(root, now)
for at = 3, #ARGV, 4 do
  local priority, id, code = ARGV[at], ARGV[at + 1], '0'
  local run_after = call('ZSCORE', base .. ':s:1:' .. priority, id)
  local claim = run_after and call('HGET', base .. ':claims', id)
  if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] then
    code = '1'
    call('ZREM', base .. ':s:1:' .. priority, id)
    call('ZREM', base .. ':expiry', id)
    call('ZADD', base .. ':s:2:' .. priority, run_after, id)
    call('ZADD', base .. ':ended:2', now, id)
    call('ZADD', root .. ':ended:2', 'LT', now, ARGV[1])
    local origin, attempts = linked(base, id)
    link(base, id, origin, attempts, ARGV[at + 3])
    if attempts ~= '' then  -- the job whose dead letter this is knows where it went
      local shard = string.match(call('HGET', root, 'shard'), '^%w*')
      local descriptor = ARGV[1] .. ':s' .. shard .. ':p' .. priority .. ':' .. string.format('%.0f', (unpack_record($ID, id)))
      local its_base, _, its_id = original_of(root, shard, origin, descriptor)
      if its_base then
        local came_from, came_with = linked(its_base, its_id)
        link(its_base, its_id, came_from, came_with, ARGV[at + 3])
      end
    end
    local extra = any_extra and call('HGET', base .. ':extra', id)
    if extra then add_end(ends, ARGV[1], id, extra, true, STAYS) end
    if any_watched then tell_ends(root, ARGV[1], {id}) end
  end
  outcome[#outcome + 1] = code
end
finish_ends(ends)
return table.concat(outcome)
