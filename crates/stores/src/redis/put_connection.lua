-- Keeps a connection.
-- KEYS row, connections; ARGV by, name, body
local no = refused(ARGV[1])
if no then return no end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
