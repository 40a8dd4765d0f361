-- Releases a claim, if this lease has it.
-- KEYS row; ARGV lease
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then
    redis.call('HSET', KEYS[1], 'holder', '')
end
return 1
