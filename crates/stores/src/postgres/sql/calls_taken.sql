-- Several runs ask together. All that begins with `id~` lies between `id~` and `id` with the character behind `~`, which
-- is DEL. The same id and those that begin with it are looked for apart, so that neither reads what lies between them.
WITH asked AS MATERIALIZED (
    SELECT a.run, r.thread, a.id FROM unnest($1::bigint[], $2::text[]) AS a (run, id) JOIN runs r ON r.run = a.run
)
SELECT a.run, c.id FROM asked a JOIN call_ids c ON c.thread = a.thread AND c.id = a.id
UNION
SELECT a.run, c.id FROM asked a
JOIN call_ids c ON c.thread = a.thread AND c.id >= a.id || '~' AND c.id < a.id || chr(127)
UNION
SELECT a.run, substr(m.id, 5) FROM asked a JOIN messages m ON m.thread = a.thread AND m.id = 'msg_' || a.id
UNION
SELECT a.run, substr(m.id, 5) FROM asked a
JOIN messages m ON m.thread = a.thread AND m.id >= 'msg_' || a.id || '~' AND m.id < 'msg_' || a.id || chr(127)
UNION
SELECT a.run, substr(p.promised, 5) FROM asked a
JOIN runs p ON p.thread = a.thread AND p.promised IS NOT NULL AND (
    p.promised = 'msg_' || a.id
    OR (p.promised >= 'msg_' || a.id || '~' AND p.promised < 'msg_' || a.id || chr(127))
)
