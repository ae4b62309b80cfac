WITH RECURSIVE tree (row) AS (
    SELECT ?6 WHERE ?6 IS NOT NULL
    UNION
    SELECT r.row FROM threads t CROSS JOIN runs r ON r.thread = t.row WHERE t.tenant = ?1 AND t.id = ?7
    UNION
    SELECT r.row FROM tree CROSS JOIN runs r ON r.parent = tree.row
)
SELECT s.id, s.run, s.seq, s.call, s.kind, s.status, s.answered_by IS NOT NULL, s.created_at, s.decided_at, s.decided_by,
    s.reason, s.note, r.id, r.agent, r.parent, r.parent_call, t.id, s.closed_seq
FROM tree CROSS JOIN suspensions s ON s.run = tree.row CROSS JOIN runs r ON r.row = s.run CROSS JOIN threads t ON t.row = r.thread
WHERE s.kind IN ('approval', 'question', 'in_doubt')
    AND (?2 IS NULL OR CASE WHEN s.answered_by IS NULL THEN s.status = ?2 ELSE ?2 <> 'pending' END)
    AND (s.created_at, s.id) > (?3, ?4)
ORDER BY s.created_at, s.id LIMIT ?5
