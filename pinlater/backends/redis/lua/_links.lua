-- Where a job came from and went to, as three lines: the descriptor of its origin; the attempts that was allowed, where
-- the job is a dead letter; the descriptor of the job's own copy. A job without any of these has no link.

-- Origin, attempts of the origin, moved to; each '' where there is none.
local function linked(base, id)
  local link = redis.call('HGET', base .. ':links', id)
  if not link then return '', '', '' end
  return string.match(link, '^(.*)\n(.*)\n(.*)$')
end

local function link(base, id, origin, attempts, moved_to)
  if origin == '' and moved_to == '' then
    redis.call('HDEL', base .. ':links', id)
  else
    redis.call('HSET', base .. ':links', id, origin .. '\n' .. attempts .. '\n' .. moved_to)
  end
end
