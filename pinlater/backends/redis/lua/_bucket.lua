-- The arithmetic of token_bucket.py. A level: tokens, and the largest time that was told, with a blank between; nil or ''
-- for a new bucket. Returns how many tokens are granted, the tokens that are left, as of when, and the milliseconds until
-- there is one more.
local function take_tokens(level, wanted, per_second, capacity, now)
  local tokens, at = string.match(level or '', '^(%S+) (%S+)$')
  tokens, at = tonumber(tokens or 1), tonumber(at or now)
  if at - now >= 10000 then at = now end
  tokens = math.min(capacity, tokens + math.max(0, now - at) * per_second / 1000)
  local granted = math.min(wanted, math.floor(tokens + 1e-9))
  tokens = math.max(0, math.min(capacity, tokens - granted))
  local wait = 0
  if tokens + 1e-9 < 1 and per_second > 0 then wait = math.ceil((1 - tokens) * 1000 / per_second - 1e-6) end
  return math.max(0, granted), tokens, math.max(at, now), wait
end

local function level_of(tokens, at) return string.format('%.17g %.0f', tokens, at) end
