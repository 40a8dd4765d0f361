-- Replaces the mutable fields of a row, if it is unchanged since it was read.
-- KEYS row, state; ARGV by, read revision, read time of use or '', read seal or '', time of use,
-- end or '', field, value, field, value, …
local refused = refusal(ARGV[1])
if refused then return refused end
local row = redis.call('HMGET', KEYS[1], 'revision', 'last_used', 'seal', 'ended_at')
if row[1] ~= ARGV[2] then return STALE end
if ARGV[3] ~= '' and row[2] ~= ARGV[3] then return STALE end
if ARGV[4] ~= '' and row[3] ~= ARGV[4] then return SEALED end
redis.call('HSET', KEYS[1], 'ended_at', ARGV[6], unpack(ARGV, 7))
if tonumber(ARGV[5]) > (tonumber(row[2]) or 0) then
    redis.call('HSET', KEYS[1], 'last_used', ARGV[5])
end
if row[4] ~= '' and ARGV[6] == '' then
    -- The reviver holds it.
    redis.call('HSET', KEYS[1], 'holder', ARGV[1])
end
if ARGV[6] ~= '' then
    -- The counter of revisions stays: a revived session must not use one of them again.
    redis.call('HSET', KEYS[1], 'holder', '', 'state_bytes', '0')
    redis.call('DEL', KEYS[2])
end
return 1
