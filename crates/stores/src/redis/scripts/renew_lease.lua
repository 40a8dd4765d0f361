-- Extends a valid lease. ARGV lease, milliseconds. Returns 0 if it has expired.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
extend(ARGV[1], ARGV[2])
return 1
