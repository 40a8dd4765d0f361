-- Removes a session: it can no longer be read. Its row is renamed, and tells what is left to be cleaned
-- up; any later call that finds the removed row can finish that.
-- KEYS row, removed row, state; ARGV by. Returns 1 if there is something to be cleaned up.
local refused = refusal(ARGV[1])
if refused == NOT_HOLDER then return refused end
if refused == MISSING then return redis.call('EXISTS', KEYS[2]) end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
return 1
