-- Grants a lease. KEYS … epoch; ARGV holder id, holder as JSON, milliseconds. Returns its epoch.
local epoch = redis.call('INCR', KEYS[3])
local lease = string.format('%.0f', epoch) .. '@' .. ARGV[1]
redis.call('HSET', KEYS[2], lease, ARGV[2])
extend(lease, ARGV[3])
return epoch
