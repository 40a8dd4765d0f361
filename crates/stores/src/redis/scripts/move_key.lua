-- Points the index of a key to a session, if it still reads as it was seen. The moment is written
-- beside it, so that it never reads the same again, even if it leads to the same session.
-- KEYS key index; ARGV seen text or '', session id, floor
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('SET', KEYS[1], table.concat({ARGV[2], ARGV[3], time[1], time[2]}, ':'))
return 1
