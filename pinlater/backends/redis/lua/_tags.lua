-- Tags of jobs. BASE:tagged has those of a job, a line each; BASE:tags the jobs of each tag, by id.

-- Note what a job with tags has there, at the end of the two lists.
local function note_tags(tagged, entries, id, priority, tags)
  tagged[#tagged + 1], tagged[#tagged + 2] = id, tags
  for tag in string.gmatch(tags, '[^\n]+') do
    entries[#entries + 1], entries[#entries + 2] = 0, tag .. '\0' .. id .. string.char(priority)
  end
end

local function write_tags(base, tagged, entries)
  write('HSET', base .. ':tagged', tagged)
  write('ZADD', base .. ':tags', entries)
end
