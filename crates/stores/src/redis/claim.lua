-- Claims a session if nobody holds it, or this lease, or a lease that is known to be dead.
-- KEYS row; ARGV lease, dead lease or ''. Answers nothing if there is no such session, the lease that
-- holds it, or the row as it is claimed.
local holder = redis.call('HGET', KEYS[1], 'holder')
if not holder then return false end
if holder ~= '' and holder ~= ARGV[1] and holder ~= ARGV[2] then return holder end
redis.call('HSET', KEYS[1], 'holder', ARGV[1])
return redis.call('HGETALL', KEYS[1])
