-- Corrects an entry of the index of deadlines, if it is unchanged since it was read.
-- KEYS deadlines; ARGV session id, read deadline, deadline or '' for none
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then
    redis.call('ZREM', KEYS[1], ARGV[1])
else
    redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
end
return 1
