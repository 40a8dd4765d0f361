-- First check of every fenced write on the row in KEYS[1]: does it exist, and may `by` write to it?
local MISSING, NOT_HOLDER, STALE, TOO_LARGE, SEALED = -1, -2, -3, -4, -5

local function refusal(by, live)
    local row = redis.call('HMGET', KEYS[1], 'holder', 'ended_at')
    if not row[1] then return MISSING end
    if row[1] ~= '' and row[1] ~= by then return NOT_HOLDER end
    if live and row[2] ~= '' then return MISSING end
    return false
end
