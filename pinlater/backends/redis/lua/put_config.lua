-- Take each entry that is newer than the one here, in order; queues come and go with theirs.
-- KEYS     1 ROOT
-- ARGV     1 now   2 store id   3 the lowest possible priority (the highest number)
--          then per entry: name, version, text, deleted version or ''
-- RETURNS  one character per entry: 1 taken, 0 not newer; nil where the store is not (or no longer) this one
-- BOUND    the entries given, with what their texts say of groups; for each queue that goes, the possible priorities
--#include config
--#include many
--#include layout
--#include lines
local root, call = KEYS[1], redis.call
local RULES_PREFIX = '$GROUP_RULES_PREFIX'
if call('HGET', root, 'store') ~= ARGV[2] then return false end

-- What is to be undone one by one when its queue is gone: `prune` does, in slices.
local function set_aside(base, queue, kind)
  if call('EXISTS', base .. ':' .. kind) == 0 then return end
  local name = queue .. ':' .. kind .. ':' .. call('INCR', root .. ':orphaned')
  call('RENAME', base .. ':' .. kind, root .. ':orphan:' .. name)
  call('SADD', root .. ':orphans:' .. kind, name)
end

-- Delete a queue with all that it has; Redis frees the memory in the background.
local function drop(queue)
  if call('HDEL', root .. ':queues', queue) == 0 then return end
  for _, index in ipairs({':claimed', ':ended:2', ':ended:3', ':dead', ':until'}) do call('ZREM', root .. index, queue) end
  for _, hash in ipairs({':shares', ':buckets'}) do call('HDEL', root .. hash, queue) end
  call('SREM', root .. ':trails', queue)
  local base = root .. ':q:' .. queue
  set_aside(base, queue, 'extra')
  set_aside(base, queue, 'keys')
  if call('DEL', base .. ':tiered') == 1 then  -- references to bodies, which are to be dropped
    set_aside(base, queue, 'jobs')
    set_aside(base, queue, 'results')
    call('SREM', root .. ':tiered', queue)
  end
  local watched = call('ZRANGE', base .. ':watched', 0, -1)
  if #watched > 0 then redis.pcall('PUBLISH', root .. ':ends', queue .. ':' .. table.concat(watched)) end
  local keys = {
    base .. ':jobs', base .. ':changed', base .. ':claims', base .. ':links', base .. ':expiry', base .. ':ended:2',
    base .. ':ended:3', base .. ':dead', base .. ':undelivered', base .. ':trails',
    base .. ':until', base .. ':expired', base .. ':watched', base .. ':results', base .. ':tagged', base .. ':tags',
    base .. ':turn', base .. ':rules', base .. ':rooms', base .. ':rooms:until',
    base .. ':permits', base .. ':permits:checks', base .. ':permits:counts', base .. ':permits:groups',
    base .. ':permits:past',
  }
  for priority = 1, tonumber(ARGV[3]) do
    for state = 0, 8 do keys[#keys + 1] = base .. ':s:' .. state .. ':' .. priority end
    for _, index in ipairs({':lines:', ':turns:', ':ahead:', ':held:'}) do keys[#keys + 1] = base .. index .. priority end
  end
  call('UNLINK', unpack(keys))
end

-- What BASE:rules has of the text of an entry. An error where a newer version writes it in another form, which counts for
-- nothing.
local function packed_group_rules(text)
  local rules, packed_rules, patterns = cjson.decode(text), {}, {}
  local function weight_of(texts) return tonumber(texts.weight or 1) end
  for group, texts in pairs(rules.groups or {}) do
    local until_ms = texts.paused == 'true' and (tonumber(texts.paused_until) or $MAX_TIME_MS) or 0
    packed_rules[#packed_rules + 1], packed_rules[#packed_rules + 2] = group, pack($GROUP_RULE, weight_of(texts), until_ms)
  end
  for i, each in ipairs(rules.patterns or {}) do
    local pieces = {}
    for piece in string.gmatch(each[1] .. '*', '([^*]*)%*') do pieces[#pieces + 1] = piece end
    patterns[i] = {pieces, weight_of(each[2])}
  end
  if #patterns > 0 then packed_rules[#packed_rules + 1], packed_rules[#packed_rules + 2] = '', cjson.encode(patterns) end
  return packed_rules
end

-- The rules for the groups of a queue (group_rules.py), unless they are those of an earlier one of its name. All
-- groups that are held back but those that are paused now wait for their turns again.
local function take_rules(queue, version, text)
  local _, deleted = parts(call('HGET', root .. ':records', queue))
  local base, now = root .. ':q:' .. queue, tonumber(ARGV[1])
  if not above(version, deleted) then return end
  local is_read, packed_rules = pcall(packed_group_rules, text)
  call('DEL', base .. ':rules')
  write('HSET', base .. ':rules', is_read and packed_rules or {})
  local lines = lines_of(base)
  for priority = 1, tonumber(ARGV[3]) do
    local freed = {}
    for _, group in ipairs(call('ZRANGE', base .. ':held:' .. priority, 0, -1)) do
      if not lines.is_group_paused(group, now) then freed[#freed + 1] = group end
    end
    if #freed > 0 then lines.free(priority, freed) end
  end
end

local micros, taken = tonumber(ARGV[1]) * 1000, {}
for at = 4, #ARGV, 4 do
  local name, version, deleted = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  local own = parts(call('HGET', root .. ':records', name))
  local is_newer = above(version, own)
  if is_newer then
    put(root, name, packed(version, deleted, ARGV[at + 2]), micros)
    if version == deleted then
      call('ZADD', root .. ':marks', string.match(version, '^%d+'), name)
    else
      call('ZREM', root .. ':marks', name)
    end
    if not string.find(name, '@', 1, true) then
      if above(deleted, own) then drop(name) end
      if version ~= deleted then call('HSETNX', root .. ':queues', name, ARGV[1]) end
    elseif sub(name, 1, #RULES_PREFIX) == RULES_PREFIX then
      take_rules(sub(name, #RULES_PREFIX + 1), version, ARGV[at + 2])
    end
  end
  taken[#taken + 1] = is_newer and '1' or '0'
end
return table.concat(taken)
