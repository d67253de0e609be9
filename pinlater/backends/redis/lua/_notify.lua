-- Tell the servers that wait for jobs of a queue which times (run_after) jobs have that are pending from now on, in the
-- words of news.py. A user of Redis who may not publish tells nothing: his servers look more often instead.
local function notify(base, now, times)
  if #times == 0 then return end
  local ready, due = 0, math.huge
  for _, time in ipairs(times) do
    time = tonumber(time)
    if time <= now then ready = ready + 1 else due = math.min(due, time) end
  end
  if due == math.huge then due = 0 end
  redis.pcall('PUBLISH', base .. ':news', string.format('- %d %.0f', ready, due))
end
