-- Points the index entry of a key to a session, if the entry is unchanged since it was read. The time is
-- part of the entry, so that it never has the same text again, even if it leads to the same session.
-- KEYS key index; ARGV read entry or '', session id, floor
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('SET', KEYS[1], table.concat({ARGV[2], ARGV[3], time[1], time[2]}, ':'))
return 1
