-- One lookup for several runs. Every id that begins with `id~` sorts from `id~` up to `id` plus DEL, the character
-- after `~`. The id itself and ids with this prefix are looked up separately, so that no other ids between them are
-- read.
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
