-- Removes a session as remove.lua does, if it is a tombstone and old enough.
-- KEYS row, removed row, state; ARGV time before which it must have ended. Returns 1 if it was removed, 0 if
-- not, -1 if it does not exist.
local ended = redis.call('HGET', KEYS[1], 'ended_at')
if not ended then return -1 end
if ended == '' or (tonumber(ended) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
return 1
