-- Forgets a connection. Answers how many there were under this name.
-- KEYS row, connections, uses; ARGV by, name
local no = refused(ARGV[1])
if no then return no end
redis.call('ZREM', KEYS[3], ARGV[2])
return redis.call('HDEL', KEYS[2], ARGV[2])
