SELECT s.id, s.run, s.seq, s.call, s.kind, s.status, s.answered_by IS NOT NULL, s.created_at, s.decided_at, s.decided_by,
    s.reason, s.note, r.id, r.agent, r.parent, r.parent_call, t.id, s.closed_seq
FROM suspensions s JOIN runs r ON r.row = s.run JOIN threads t ON t.row = r.thread
WHERE s.run = ?1 AND s.kind IN ('approval', 'question', 'in_doubt') AND (?2 IS NULL OR CASE WHEN s.answered_by IS NULL THEN s.status = ?2 ELSE ?2 <> 'pending' END)
    AND (s.created_at, s.id) > (?3, ?4)
    AND (coalesce(s.closed_seq, s.seq) > ?6 OR (s.closed_seq IS NULL AND s.answered_by IS NOT NULL))
ORDER BY s.created_at, s.id LIMIT ?5
