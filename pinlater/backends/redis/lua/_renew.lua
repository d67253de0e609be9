-- A sign of life of a claim, by which it expires at `expiry`: when it expires then, and the time of the job's last
-- change. Where a later change has overtaken it (requests.py), the claim never expires earlier for it, and both times
-- move, by which others see that it came. To be asked before the claim leaves BASE:expiry.
local function renewal(base, id, claim, changed, now, expiry)
  local last = unpack_record(CLAIM, claim)
  if changed then last = math.max(last, (unpack_record(CHANGED, changed))) end
  if now < last and last - now <= $MOST_OVERTAKEN_MS then
    return math.max(expiry, redis.call('ZSCORE', base .. ':expiry', id) + 1), last + 1
  end
  return expiry, now
end
