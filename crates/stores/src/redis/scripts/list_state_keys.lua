-- Lists a session's values. KEYS state. Answers {key, revision, size, …}.
local answer = {}
local keys = redis.call('HKEYS', KEYS[1])
for _, field in ipairs(keys) do
    if string.sub(field, 1, 1) == 'r' then
        local key = string.sub(field, 2)
        answer[#answer + 1] = key
        answer[#answer + 1] = redis.call('HGET', KEYS[1], field)
        answer[#answer + 1] = redis.call('HSTRLEN', KEYS[1], 'v' .. key)
    end
end
return answer
