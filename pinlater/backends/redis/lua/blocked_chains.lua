-- The serialize keys with most jobs waiting, and those whose first job has been that for longest.
-- KEYS     1 ROOT
-- ARGV     1 limit
-- RETURNS  {key, head of the chain, how many wait, ...}
-- BOUND    twice the limit
local root, call, answer, seen = KEYS[1], redis.call, {}, {}
local last = tonumber(ARGV[1]) - 1
if last < 0 then return {} end
for _, keys in ipairs({call('ZREVRANGE', root .. ':waiting', 0, last), call('ZRANGE', root .. ':since', 0, last)}) do
  for _, key in ipairs(keys) do
    if not seen[key] then
      local n = #answer
      answer[n + 1], answer[n + 2] = key, call('HGET', root .. ':heads', key)
      answer[n + 3] = call('ZSCORE', root .. ':waiting', key)
      seen[key] = true
    end
  end
end
return answer
