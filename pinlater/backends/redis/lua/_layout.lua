-- The packed records, as packing.py has them (big-endian, no padding):
--   head     created_at I8, attempts_allowed I4, priority B, bytes of the first status I2 | the first status | body
--   changed  updated_at I8, attempts_remaining I4, attempts_allowed I4, crashes I4 | status
--   claim    claimed_at I8, time-out I8, attempts allowed when enqueued I4, priority B | descriptor
local pack, unpack_record = struct.pack, struct.unpack
local sub, byte = string.sub, string.byte
local HEAD, CHANGED, CLAIM = '>I8I4BI2', '>I8I4I4I4', '>I8I8I4B'
local DESCRIPTOR_AT = 22  -- where the descriptor begins in a claim
local CHANGED_STATUS_AT = 21

local MAX_STATUS_CHARS = 5000

-- The front of a status, never cut inside a character.
local function cut(status)
  if #status <= MAX_STATUS_CHARS then return status end
  if not string.find(status, '[\128-\255]') then return sub(status, 1, MAX_STATUS_CHARS) end
  local at = 1
  for _ = 1, MAX_STATUS_CHARS do
    local lead = byte(status, at)
    if not lead then return status end
    at = at + (lead < 0x80 and 1 or lead < 0xE0 and 2 or lead < 0xF0 and 3 or 4)
  end
  return sub(status, 1, at - 1)
end

-- attempts_remaining, attempts_allowed, crashes, status of a job that was claimed at least once.
local function mutable(changed, claim)
  if changed then
    local _, remaining, allowed, crashes = unpack_record(CHANGED, changed)
    return remaining, allowed, crashes, sub(changed, CHANGED_STATUS_AT)
  end
  local _, _, allowed = unpack_record(CLAIM, claim)
  return allowed, allowed, 0, ''
end
