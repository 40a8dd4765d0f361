-- Last step of a removal. If the row exists, its session is just being created.
-- KEYS row, removed row, handles, connections, times of use
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end
return 1
