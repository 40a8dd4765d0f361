-- Forgets a connection. Answers how many there were under this name.
-- KEYS row, connections; ARGV by, name
local no = refused(ARGV[1])
if no then return no end
return redis.call('HDEL', KEYS[2], ARGV[2])
