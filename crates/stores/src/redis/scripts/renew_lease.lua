-- Lets a living lease run on. ARGV lease, milliseconds. Answers 0 if it is dead.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
run(ARGV[1], ARGV[2])
return 1
