-- Forgets a tombstone as remove.lua forgets a session, if it is one and old enough.
-- KEYS row, grave, state; ARGV the end it must be before. Answers 1 if so, 0 if not, -1 if it is gone.
local ended = redis.call('HGET', KEYS[1], 'ended_at')
if not ended then return -1 end
if ended == '' or (tonumber(ended) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
return 1
