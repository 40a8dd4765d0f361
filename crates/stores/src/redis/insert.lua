-- Writes a new row; an id is never used twice.
-- KEYS row; ARGV field, value, field, value, …
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
