-- Writes one value. The bytes are left out if they alone exceed a limit.
-- … ARGV bytes, their size, limits on a key, a value, the session, the number of keys.
-- Returns {1, revision}, {TOO_LARGE, bytes of the others, number of the others} or {refusal}.
local size = tonumber(ARGV[5])
local total = others + #key + size
if #key > tonumber(ARGV[6]) or size > tonumber(ARGV[7]) or total > tonumber(ARGV[8])
    or count + 1 > tonumber(ARGV[9]) then
    return {TOO_LARGE, others, count}
end
local revision = redis.call('HINCRBY', KEYS[1], 'state_revision', 1)
redis.call('HSET', KEYS[2], 'r' .. key, string.format('%.0f', revision), 'v' .. key, ARGV[4])
set_state_bytes(total)
return {1, revision}
