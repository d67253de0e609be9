-- The packed records; records.py lays them out, and fills in what begins with $:
--   head     created_at, attempts_allowed, priority, bytes of the first status | the first status | body
--   changed  updated_at, attempts_remaining, attempts_allowed, crashes | status
--   claim    claimed_at, time-out, attempts allowed when enqueued, priority | descriptor
local pack, unpack_record = struct.pack, struct.unpack
local sub, byte = string.sub, string.byte
local HEAD, CHANGED, CLAIM = $HEAD, $CHANGED, $CLAIM
local TIERED = $TIERED  -- is added to the priority of a head or a result: a reference stands in place of the body
local DESCRIPTOR_AT = $CLAIM_BYTES + 1  -- where the descriptor begins in a claim
local CHANGED_STATUS_AT = $CHANGED_BYTES + 1

-- The version of the store is this one, or a higher one (store_version.py).
local function raise_version(root, version)
  local shard = redis.call('HGET', root, 'shard')
  if tonumber(string.match(shard, '%(version (%d+)%)') or 1) >= version then return end
  redis.call('HSET', root, 'shard', string.format('%s (version %d)', string.match(shard, '^%w*'), version))
end

local MAX_STATUS_CHARS = $MAX_STATUS_CHARS

local CUT_MARK, MAX_WITH_MARK = '$CUT_MARK', $MAX_WITH_MARK

-- The front of a status, `most` characters, never cut inside one.
local function front(status, most)
  if #status <= most then return status end
  if not string.find(status, '[\128-\255]') then return sub(status, 1, most) end
  local at = 1
  for _ = 1, most do
    local lead = byte(status, at)
    if not lead then return status end
    at = at + (lead < 0x80 and 1 or lead < 0xE0 and 2 or lead < 0xF0 and 3 or 4)
  end
  return sub(status, 1, at - 1)
end

local function cut(status)
  return front(status, MAX_STATUS_CHARS)
end

local function chars(text)
  local _, count = string.gsub(text, '[^\128-\191]', '')
  return count
end

-- A text behind a status, which loses its end where both are too long together: the newest text survives.
local function append(status, text)
  if text == '' or #status + #text <= MAX_WITH_MARK then return status .. text end
  text = front(text, MAX_WITH_MARK)
  local room = MAX_WITH_MARK - chars(text)
  if chars(status) <= room then return status .. text end
  return front(status, room) .. CUT_MARK .. text
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
