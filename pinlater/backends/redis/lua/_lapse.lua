-- End claims as expired or released: back to PENDING, or to FAILED without attempts or over the crash budget.
-- `jobs` are {id, claim} of jobs in progress, each once. `words`: the status line around the attempts that remain, and
-- the one around the crashes. `marks`: those that fail are marked for bury. Returns how many went back and how many
-- failed.
-- The first write removes, and removing is allowed in a Redis out of memory; then so is the rest of the script.
local function lapse(root, queue, jobs, now, budget, marks, words)
  local base = root .. ':q:' .. queue
  local ids = {}
  for i, job in ipairs(jobs) do ids[i] = job[1] end
  if #ids == 0 then return 0, 0 end
  write('ZREM', base .. ':expiry', ids)
  local changed = read('HMGET', base .. ':changed', ids)
  local new, moves, freed, ended, failed = {}, {}, {}, {}, 0
  for i, id in ipairs(ids) do
    local claim = jobs[i][2]
    local remaining, allowed, crashes, status = mutable(changed[i], claim)
    local priority = byte(claim, DESCRIPTOR_AT - 1)
    crashes = crashes + 1
    local used_up = budget > 0 and crashes >= budget
    remaining = used_up and 0 or remaining - 1
    status = status .. words[1] .. remaining .. words[2]
    if used_up then status = status .. words[3] .. crashes .. words[4] end
    new[#new + 1] = id
    new[#new + 1] = pack(CHANGED, now, remaining, allowed, crashes) .. cut(status)
    local move = moves[priority]
    if not move then
      move = {out = {}, pending = {}, failed = {}, failed_ids = {}}
      moves[priority] = move
    end
    move.out[#move.out + 1] = id
    if remaining > 0 then
      freed[#freed + 1] = id
      move.pending[#move.pending + 1] = now
      move.pending[#move.pending + 1] = id
    else
      failed = failed + 1
      ended[#ended + 1] = now
      ended[#ended + 1] = id
      move.failed_ids[#move.failed_ids + 1] = id
    end
  end
  for priority, move in pairs(moves) do
    local run_after = read('ZMSCORE', base .. ':s:1:' .. priority, move.failed_ids)
    for i, id in ipairs(move.failed_ids) do
      move.failed[2 * i - 1] = run_after[i]
      move.failed[2 * i] = id
    end
    write('ZREM', base .. ':s:1:' .. priority, move.out)
    write('ZADD', base .. ':s:0:' .. priority, move.pending)
    write('ZADD', base .. ':s:3:' .. priority, move.failed)
  end
  write('HSET', base .. ':changed', new)
  write('HDEL', base .. ':claims', freed)
  local index = marks and ':dead' or ':ended:3'
  write('ZADD', base .. index, ended)
  if failed > 0 then redis.call('ZADD', root .. index, 'LT', now, queue) end
  local times = {}
  for i = 1, #freed do times[i] = now end
  tell(base, now, times)
  return #ids - failed, failed
end
