SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.row, r.control, r.agent, r.seq
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.tenant = ?1 AND r.status = ?2 AND (r.ended_at IS NOT NULL OR r.interrupt_accepted = 0)
    AND (r.created_at, r.id) < (?3, ?4)
ORDER BY r.created_at DESC, r.id DESC LIMIT ?5
