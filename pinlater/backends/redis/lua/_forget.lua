-- Remove jobs that were just taken out of their state's zset.
local function forget(base, state, ids)
  for _, hash in ipairs({':jobs', ':changed', ':links', ':undelivered'}) do write('HDEL', base .. hash, ids) end
  if state == 0 then return end
  write('HDEL', base .. ':claims', ids)
  if state == 1 then
    write('ZREM', base .. ':expiry', ids)
  else
    write('ZREM', base .. ':ended:' .. state, ids)
    if state == 3 then write('ZREM', base .. ':dead', ids) end
  end
end
