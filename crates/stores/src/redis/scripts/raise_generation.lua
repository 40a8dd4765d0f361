-- Raises the generation of a row that still exists.
-- KEYS row; ARGV generation
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
return 1
