-- First check of a write to one value: the session's row, then the current value.
-- KEYS row, state; ARGV by, key, condition ('' any value, '-' none, else a revision), …
local key = ARGV[2]
local refused = refusal(ARGV[1], true)
if refused then return {refused} end
local found = redis.call('HGET', KEYS[2], 'r' .. key)
if ARGV[3] == '-' then
    if found then return {STALE} end
elseif ARGV[3] ~= '' and found ~= ARGV[3] then
    return {STALE}
end
-- All other values.
local others = tonumber(redis.call('HGET', KEYS[1], 'state_bytes'))
local count = redis.call('HLEN', KEYS[2]) / 2
if found then
    others = others - #key - redis.call('HSTRLEN', KEYS[2], 'v' .. key)
    count = count - 1
end
local function set_state_bytes(bytes)
    redis.call('HSET', KEYS[1], 'state_bytes', string.format('%.0f', bytes))
end
