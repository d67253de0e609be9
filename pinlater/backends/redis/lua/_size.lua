-- The bytes of the body that a value has, or that its reference says.
local function body_bytes(value)
  local _, _, priority, status_bytes = unpack_record(HEAD, value)
  if priority >= TIERED then return (unpack_record($LENGTH, value, $HEAD_BYTES + status_bytes + 1)) end
  return #value - $HEAD_BYTES - status_bytes
end
local function result_bytes(result)
  if byte(result, $RESULT_BYTES) >= TIERED then return (unpack_record($LENGTH, result, $RESULT_BYTES + 1)) end
  return #result - $RESULT_BYTES
end
