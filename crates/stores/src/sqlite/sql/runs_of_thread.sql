SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.row, r.control, r.agent, r.seq
FROM threads t CROSS JOIN runs r ON r.thread = t.row
WHERE t.tenant = ?1 AND t.id = ?7 AND (?2 IS NULL OR ?2 =
        CASE WHEN r.ended_at IS NULL AND r.interrupt_accepted = 1 THEN 'interrupting' ELSE r.status END)
    AND (r.created_at, r.id) < (?3, ?4)
    AND (?6 IS NULL OR r.agent = ?6)
ORDER BY r.created_at DESC, r.id DESC LIMIT ?5
