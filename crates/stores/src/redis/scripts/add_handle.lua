-- Appends a handle to the list and removes the oldest ones above the limit.
-- KEYS row, handles; ARGV by, hash, limit. Returns {1, removed, …} or {refusal}.
local refused = refusal(ARGV[1])
if refused then return {refused} end
local result = {1}
-- A repeated call moves the handle to the end.
redis.call('LREM', KEYS[2], 0, ARGV[2])
local count = redis.call('RPUSH', KEYS[2], ARGV[2])
while count > tonumber(ARGV[3]) do
    result[#result + 1] = redis.call('LPOP', KEYS[2])
    count = count - 1
end
return result
