-- Forgets every lease that ran out by the server's clock before anything else is asked, so that a
-- lease once seen dead stays so, even if the clock is set back.
-- KEYS ends of leases, holders, …
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
for _, lease in ipairs(dead) do
    redis.call('ZREM', KEYS[1], lease)
    redis.call('HDEL', KEYS[2], lease)
end
-- Beyond this moment a number in here would no longer be exact; it is 270,000 years away.
local function run(lease, ttl)
    local ends = math.min(now + tonumber(ttl), 8640000000000000)
    redis.call('ZADD', KEYS[1], string.format('%.0f', ends), lease)
end
