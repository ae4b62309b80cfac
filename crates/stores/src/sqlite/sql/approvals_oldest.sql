SELECT s.id, s.run, s.seq, s.call, s.kind, s.status, s.answered_by IS NOT NULL, s.created_at, s.decided_at, s.decided_by,
    s.reason, s.note, r.id, r.agent, r.parent, r.parent_call, t.id, s.closed_seq
FROM suspensions s JOIN runs r ON r.row = s.run JOIN threads t ON t.row = r.thread
WHERE s.tenant = ?1 AND s.status = ?2 AND (s.status <> 'pending' OR s.answered_by IS NOT NULL)
    AND s.kind IN ('approval', 'question', 'in_doubt') AND (s.created_at, s.id) > (?3, ?4)
ORDER BY s.created_at, s.id LIMIT ?5
