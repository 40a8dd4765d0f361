-- Keeps a connection, and forgets those of the session that were not used since, but for those that were used last.
-- KEYS row, connections, uses; ARGV by, name, body, time of use, the time since, how many stay.
-- Answers {1, forgotten, …} or {refusal}.
local no = refused(ARGV[1])
if no then return {no} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[3], 'GT', ARGV[4], ARGV[2])
local answer = {1}
local last = redis.call('ZREVRANGE', KEYS[3], ARGV[6] - 1, ARGV[6] - 1, 'WITHSCORES')[2]
if not last then return answer end
local since = ARGV[5]
if tonumber(last) < tonumber(since) then since = last end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. since)) do
    redis.call('ZREM', KEYS[3], name)
    redis.call('HDEL', KEYS[2], name)
    answer[#answer + 1] = name
end
return answer
