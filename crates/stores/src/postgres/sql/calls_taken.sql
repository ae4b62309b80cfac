-- All that begins with `id~` lies between `id~` and `id` with the character behind `~`, which is DEL.
SELECT c.id FROM runs r CROSS JOIN unnest($2::text[]) AS a (id)
JOIN call_ids c ON c.thread = r.thread AND (c.id = a.id OR (c.id >= a.id || '~' AND c.id < a.id || chr(127)))
WHERE r.run = $1
UNION
SELECT substr(m.id, 5) FROM runs r CROSS JOIN unnest($2::text[]) AS a (id)
JOIN messages m ON m.thread = r.thread
    AND (m.id = 'msg_' || a.id OR (m.id >= 'msg_' || a.id || '~' AND m.id < 'msg_' || a.id || chr(127)))
WHERE r.run = $1
UNION
SELECT substr(p.promised, 5) FROM runs r CROSS JOIN unnest($2::text[]) AS a (id)
JOIN runs p ON p.thread = r.thread AND p.promised IS NOT NULL AND (
    p.promised = 'msg_' || a.id
    OR (p.promised >= 'msg_' || a.id || '~' AND p.promised < 'msg_' || a.id || chr(127))
)
WHERE r.run = $1
