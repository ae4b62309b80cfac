-- `$6`: include interrupting runs, which no status in `$2` selects.
SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.run, r.control, r.agent, r.seq
FROM (
    (
        SELECT i.* FROM runs i
        WHERE $6::boolean AND i.tenant = $1 AND i.ended_at IS NULL
            AND (i.interrupt_accepted OR i.status = 'interrupting') AND (i.created_at, i.id) < ($3, $4)
        ORDER BY i.created_at DESC, i.id DESC LIMIT $5
    )
    UNION ALL
    SELECT rest.* FROM unnest($2::text[]) AS s (status)
    CROSS JOIN LATERAL (
        SELECT f.* FROM runs f
        WHERE f.tenant = $1 AND f.status = s.status AND (f.ended_at IS NOT NULL OR NOT f.interrupt_accepted)
            AND (f.created_at, f.id) < ($3, $4)
        ORDER BY f.created_at DESC, f.id DESC LIMIT $5
    ) AS rest
) AS r
JOIN threads t ON t.thread = r.thread
ORDER BY r.created_at DESC, r.id DESC LIMIT $5
