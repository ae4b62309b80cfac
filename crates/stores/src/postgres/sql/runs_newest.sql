SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.run, r.control
FROM unnest($2::text[]) AS s (status)
CROSS JOIN LATERAL (
    SELECT * FROM runs f
    WHERE f.tenant = $1 AND f.status = s.status AND (f.created_at, f.id) < ($3, $4)
        AND ($6::text IS NULL OR f.agent = $6)
    ORDER BY f.created_at DESC, f.id DESC LIMIT $5
) AS r
JOIN threads t ON t.thread = r.thread
ORDER BY r.created_at DESC, r.id DESC LIMIT $5
