-- Updates the time of last use of a live session.
-- KEYS row; ARGV by, time of use
if refusal(ARGV[1], true) then return 0 end
if tonumber(ARGV[2]) > (tonumber(redis.call('HGET', KEYS[1], 'last_used')) or 0) then
    redis.call('HSET', KEYS[1], 'last_used', ARGV[2])
end
return 1
