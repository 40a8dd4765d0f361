-- Before a key is taken from a session that is over, it is sealed: a revival that has begun then
-- fails and begins anew, and finds the key taken.
-- KEYS row. Answers {0} if it is gone, {1} if it lives, {2, generation} if it is over.
local row = redis.call('HMGET', KEYS[1], 'ended_at', 'generation')
if not row[1] then return {0, ''} end
if row[1] == '' then return {1, ''} end
redis.call('HINCRBY', KEYS[1], 'seal', 1)
return {2, row[2]}
