-- Notify the servers that wait for jobs of a queue of the times (run_after) of jobs that are pending from now on, in the
-- form of pubsub.py. Where the user of Redis may not publish nothing is sent, and the servers poll more often.
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
