-- Writes a new row, and its connection unless the name is empty; an id is never used twice.
-- KEYS row, connections, times of use; ARGV name, body, time of use, field, value, field, value, …
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if ARGV[1] ~= '' then
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
end
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
return 1
