SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.row, r.control, r.agent, r.seq
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.tenant = ?1 AND r.ended_at IS NULL AND (r.interrupt_accepted = 1 OR r.status = 'interrupting')
    AND (r.created_at, r.id) < (?2, ?3) AND (?5 IS NULL OR r.agent = ?5)
ORDER BY r.created_at DESC, r.id DESC LIMIT ?4
