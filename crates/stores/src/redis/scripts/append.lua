-- Appends an event: one sorted set holds all topics of a session, in the order of topic and number.
-- KEYS last numbers, events; ARGV topic, body. Returns the number.
local number = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('ZADD', KEYS[2], 0, ARGV[1] .. ':' .. string.format('%020.0f', number) .. ':' .. ARGV[2])
return number
