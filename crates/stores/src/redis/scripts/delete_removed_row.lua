-- The last step of forgetting. A row that is there belongs to a session that is just being made.
-- KEYS row, grave, handles, connections, uses
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end
return 1
