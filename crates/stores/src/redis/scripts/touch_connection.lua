-- Updates the time of last use of a connection.
-- KEYS row, connections, times of use; ARGV by, name, time of use
if refusal(ARGV[1]) or redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then return 0 end
redis.call('ZADD', KEYS[3], 'GT', ARGV[3], ARGV[2])
return 1
