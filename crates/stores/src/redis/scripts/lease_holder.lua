-- Returns the holder of a valid lease as JSON. ARGV lease
return redis.call('HGET', KEYS[2], ARGV[1])
