-- Adds a handle at the end of the list and takes the oldest of too many off its beginning.
-- KEYS row, handles; ARGV by, hash, how many there may be. Answers {1, forgotten, …} or {refusal}.
local no = refused(ARGV[1])
if no then return {no} end
local answer = {1}
-- Whoever was not sure that it was added adds it again.
redis.call('LREM', KEYS[2], 0, ARGV[2])
local count = redis.call('RPUSH', KEYS[2], ARGV[2])
while count > tonumber(ARGV[3]) do
    answer[#answer + 1] = redis.call('LPOP', KEYS[2])
    count = count - 1
end
return answer
