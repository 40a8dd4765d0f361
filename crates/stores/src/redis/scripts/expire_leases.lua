-- Deletes every lease that has expired by the server's clock before any other step, so that a lease once
-- seen expired stays so, even if the clock is set back.
-- KEYS expiry times of leases, holders, …
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
for _, lease in ipairs(expired) do
    redis.call('ZREM', KEYS[1], lease)
    redis.call('HDEL', KEYS[2], lease)
end
-- Above this time a number in Lua is no longer exact; it is 270,000 years away.
local function extend(lease, ttl)
    local ends = math.min(now + tonumber(ttl), 8640000000000000)
    redis.call('ZADD', KEYS[1], string.format('%.0f', ends), lease)
end
