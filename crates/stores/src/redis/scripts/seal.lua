-- Seals an ended session before its key is taken: a revival in progress then fails and starts again, and
-- finds the key taken.
-- KEYS row. Returns {0} if it does not exist, {1} if it is live, {2, generation} if it has ended.
local row = redis.call('HMGET', KEYS[1], 'ended_at', 'generation')
if not row[1] then return {0, ''} end
if row[1] == '' then return {1, ''} end
redis.call('HINCRBY', KEYS[1], 'seal', 1)
return {2, row[2]}
