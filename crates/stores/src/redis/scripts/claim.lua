-- Claims a session if it has no claim, or that of this lease, or that of a lease known to be expired.
-- KEYS row; ARGV lease, expired lease or ''. Returns nothing if it does not exist or has ended, the lease
-- that holds it, or the claimed row.
local row = redis.call('HMGET', KEYS[1], 'holder', 'ended_at')
local holder = row[1]
if not holder or row[2] ~= '' then return false end
if holder ~= '' and holder ~= ARGV[1] and holder ~= ARGV[2] then return holder end
redis.call('HSET', KEYS[1], 'holder', ARGV[1])
return redis.call('HGETALL', KEYS[1])
