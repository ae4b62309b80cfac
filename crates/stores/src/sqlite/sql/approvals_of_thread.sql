SELECT s.id, s.run, s.seq, s.call, s.kind, s.status, s.answered_by IS NOT NULL, s.created_at, s.decided_at, s.decided_by,
    s.reason, s.note, r.id, r.agent, r.parent, r.parent_call, t.id, s.closed_seq
FROM threads t CROSS JOIN runs r ON r.thread = t.row CROSS JOIN suspensions s ON s.run = r.row
WHERE t.tenant = ?1 AND t.id = ?6 AND s.kind IN ('approval', 'question', 'in_doubt')
    AND (?2 IS NULL OR CASE WHEN s.answered_by IS NULL THEN s.status = ?2 ELSE ?2 <> 'pending' END) AND (s.created_at, s.id) > (?3, ?4)
ORDER BY s.created_at, s.id LIMIT ?5
