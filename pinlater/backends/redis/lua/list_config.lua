-- Configuration entries in the order in which they came.
-- KEYS     1 ROOT
-- ARGV     1 the revision to go on behind   2 limit   3 store id
-- RETURNS  {revision, then per entry: name, version, text, deleted version or ''}; nil where the store is not (or no
--          longer) this one
-- BOUND    limit
--#include many
--#include config
local root = KEYS[1]
if redis.call('HGET', root, 'store') ~= ARGV[3] then return false end
local names = redis.call('ZRANGEBYSCORE', root .. ':revisions', '(' .. ARGV[1], '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
if #names == 0 then return {ARGV[1]} end
local answer = {redis.call('ZSCORE', root .. ':revisions', names[#names])}
for i, entry in ipairs(read('HMGET', root .. ':records', names)) do
  local version, deleted, text = parts(entry)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = names[i], version, text, deleted
end
return answer
