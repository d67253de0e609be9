-- Read the identity; write it where there is none yet and an id is given. A queue that has no record gets one: the
-- store is from before there were any.
-- KEYS     1 ROOT
-- ARGV     1 shard id, or '' for what the record says   2 a random store id
-- RETURNS  {shard id, perhaps with the version of the store behind it, store id}, or {'', ''} where there is none and none is given
-- BOUND    the number of queues
--#include config
local root = KEYS[1]
local known = redis.call('HMGET', root, 'shard', 'store')
if not (known[1] and known[2]) then
  if ARGV[1] == '' then return {'', ''} end
  redis.call('HSET', root, 'shard', ARGV[1], 'store', ARGV[2])
  return {ARGV[1], ARGV[2]}
end
if ARGV[1] ~= '' and ARGV[1] ~= string.match(known[1], '^%w*') then return known end
local queues, has_groups = redis.call('HGETALL', root .. ':queues'), false
for i = 1, #queues, 2 do
  has_groups = has_groups or string.sub(queues[i + 1], -1) == '$GROUPS_MARK'
  local name, micros = queues[i], tonumber(string.match(queues[i + 1], '^%d+')) * 1000
  if redis.call('HEXISTS', root .. ':records', name) == 0 then
    put(root, name, packed(string.format('%016.0f-00000000', micros), '', '{}'), micros)
  end
end
-- A store without references and groups is one that earlier versions understand.
local any = {root .. ':tiered', root .. ':dropped', root .. ':orphans:jobs', root .. ':orphans:results'}
local version, needed = tonumber(string.match(known[1], '%(version (%d+)%)$') or 1), $EXTENDED_VERSION
if redis.call('EXISTS', unpack(any)) > 0 then needed = $REFERENCES_VERSION end
if has_groups then needed = $GROUPS_VERSION end
if version <= $GROUPS_VERSION and version > needed then
  known[1] = string.match(known[1], '^%w*') .. ' (version ' .. needed .. ')'
  redis.call('HSET', root, 'shard', known[1])
end
return known
