SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.run, r.control, r.agent, r.seq
FROM threads t JOIN runs r ON r.thread = t.thread
WHERE t.tenant = $1 AND t.id = $7 AND ($2::text IS NULL OR $2 =
        CASE WHEN r.ended_at IS NULL AND r.interrupt_accepted THEN 'interrupting' ELSE r.status END)
    AND (r.created_at, r.id) < ($3, $4)
    AND ($6::text IS NULL OR r.agent = $6)
ORDER BY r.created_at DESC, r.id DESC LIMIT $5
