-- Remove jobs that were just taken out of their state's zset.
local function forget(base, state, ids)
  write('HDEL', base .. ':jobs', ids)
  write('HDEL', base .. ':changed', ids)
  if state == 0 then return end
  write('HDEL', base .. ':claims', ids)
  if state == 1 then
    write('ZREM', base .. ':expiry', ids)
  else
    write('ZREM', base .. ':ended:' .. state, ids)
  end
end
