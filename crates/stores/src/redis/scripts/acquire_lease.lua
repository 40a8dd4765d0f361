-- Gives out a lease. KEYS … epoch; ARGV holder id, holder as JSON, milliseconds. Answers its epoch.
local epoch = redis.call('INCR', KEYS[3])
local lease = string.format('%.0f', epoch) .. '@' .. ARGV[1]
redis.call('HSET', KEYS[2], lease, ARGV[2])
run(lease, ARGV[3])
return epoch
