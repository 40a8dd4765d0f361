-- Removes a connection. Returns how many had this name.
-- KEYS row, connections, times of use; ARGV by, name
local refused = refusal(ARGV[1])
if refused then return refused end
redis.call('ZREM', KEYS[3], ARGV[2])
return redis.call('HDEL', KEYS[2], ARGV[2])
