-- Who has a living lease, as JSON. ARGV lease
return redis.call('HGET', KEYS[2], ARGV[1])
