-- Stores a connection, and removes stale ones of the session, except the most recently used ones.
-- KEYS row, connections, times of use; ARGV by, name, body, time of use, time before which one is stale,
-- number of retained ones. Returns {1, removed, …} or {refusal}.
local refused = refusal(ARGV[1])
if refused then return {refused} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[3], 'GT', ARGV[4], ARGV[2])
local result = {1}
local last = redis.call('ZREVRANGE', KEYS[3], ARGV[6] - 1, ARGV[6] - 1, 'WITHSCORES')[2]
if not last then return result end
local stale_before = ARGV[5]
if tonumber(last) < tonumber(stale_before) then stale_before = last end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. stale_before)) do
    redis.call('ZREM', KEYS[3], name)
    redis.call('HDEL', KEYS[2], name)
    result[#result + 1] = name
end
return result
