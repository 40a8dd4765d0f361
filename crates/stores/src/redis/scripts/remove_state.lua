-- Removes one value, if there is one. Answers {1} or {refusal}.
if found then
    redis.call('HDEL', KEYS[2], 'r' .. key, 'v' .. key)
    note(others)
end
return {1}
