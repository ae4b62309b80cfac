SELECT c.id FROM runs r JOIN call_ids c ON c.thread = r.thread WHERE r.row = ?1 AND c.id = ?2
UNION ALL
SELECT c.id FROM runs r JOIN call_ids c ON c.thread = r.thread WHERE r.row = ?1 AND c.id >= ?3 AND c.id < ?4
UNION ALL
SELECT substr(m.id, 5) FROM runs r JOIN messages m ON m.thread = r.thread
WHERE r.row = ?1 AND m.id = 'msg_' || ?2
UNION ALL
SELECT substr(m.id, 5) FROM runs r JOIN messages m ON m.thread = r.thread
WHERE r.row = ?1 AND m.id >= 'msg_' || ?3 AND m.id < 'msg_' || ?4
UNION ALL
SELECT substr(p.promised, 5) FROM runs r JOIN runs p ON p.thread = r.thread
WHERE r.row = ?1 AND p.promised = 'msg_' || ?2
UNION ALL
SELECT substr(p.promised, 5) FROM runs r JOIN runs p ON p.thread = r.thread
WHERE r.row = ?1 AND p.promised >= 'msg_' || ?3 AND p.promised < 'msg_' || ?4
