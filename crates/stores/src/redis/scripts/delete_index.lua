-- Deletes the index entry of a key or a name, if it still leads to this session.
-- KEYS index; ARGV session id
local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
