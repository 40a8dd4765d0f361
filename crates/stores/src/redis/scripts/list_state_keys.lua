-- Lists a session's values. KEYS state. Returns {key, revision, size, …}.
local result = {}
local keys = redis.call('HKEYS', KEYS[1])
for _, field in ipairs(keys) do
    if string.sub(field, 1, 1) == 'r' then
        local key = string.sub(field, 2)
        result[#result + 1] = key
        result[#result + 1] = redis.call('HGET', KEYS[1], field)
        result[#result + 1] = redis.call('HSTRLEN', KEYS[1], 'v' .. key)
    end
end
return result
