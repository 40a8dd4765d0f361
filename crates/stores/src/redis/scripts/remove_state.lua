-- Removes one value, if there is one. Returns {1} or {refusal}.
if found then
    redis.call('HDEL', KEYS[2], 'r' .. key, 'v' .. key)
    set_state_bytes(others)
end
return {1}
