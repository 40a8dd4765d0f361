-- What a change of one value asks first: the session's row, then what is there now.
-- KEYS row, state; ARGV by, key, what must be there ('' anything, '-' nothing, else a revision), …
local key = ARGV[2]
local no = refused(ARGV[1], true)
if no then return {no} end
local found = redis.call('HGET', KEYS[2], 'r' .. key)
if ARGV[3] == '-' then
    if found then return {STALE} end
elseif ARGV[3] ~= '' and found ~= ARGV[3] then
    return {STALE}
end
-- All values but this one.
local others = tonumber(redis.call('HGET', KEYS[1], 'state_bytes'))
local count = redis.call('HLEN', KEYS[2]) / 2
if found then
    others = others - #key - redis.call('HSTRLEN', KEYS[2], 'v' .. key)
    count = count - 1
end
local function note(bytes)
    redis.call('HSET', KEYS[1], 'state_bytes', string.format('%.0f', bytes))
end
