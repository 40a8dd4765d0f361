-- Claims a session if nobody holds it, or this lease, or a lease that is known to be dead.
-- KEYS row; ARGV lease, dead lease or ''. Answers nothing if it is over or gone, the lease that
-- holds it, or the row as it is claimed.
local row = redis.call('HMGET', KEYS[1], 'holder', 'ended_at')
local holder = row[1]
if not holder or row[2] ~= '' then return false end
if holder ~= '' and holder ~= ARGV[1] and holder ~= ARGV[2] then return holder end
redis.call('HSET', KEYS[1], 'holder', ARGV[1])
return redis.call('HGETALL', KEYS[1])
