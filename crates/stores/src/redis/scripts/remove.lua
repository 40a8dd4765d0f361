-- Forgets a session: from here on nobody can read it. Its row becomes a grave, which says what is
-- left to be cleaned up; whoever finds a grave can finish that.
-- KEYS row, grave, state; ARGV by. Answers 1 if there is something to be cleaned up.
local no = refused(ARGV[1])
if no == HELD then return no end
if no == MISSING then return redis.call('EXISTS', KEYS[2]) end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
return 1
