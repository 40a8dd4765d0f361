-- What every fenced write asks first of the row in KEYS[1]: is it there, and may `by` write to it?
local MISSING, HELD, STALE, LARGE, SEALED = -1, -2, -3, -4, -5

local function refused(by, live)
    local row = redis.call('HMGET', KEYS[1], 'holder', 'ended_at')
    if not row[1] then return MISSING end
    if row[1] ~= '' and row[1] ~= by then return HELD end
    if live and row[2] ~= '' then return MISSING end
    return false
end
