SELECT * FROM suspensions_shown s
WHERE s.tenant = $1 AND s.kind IN ('approval', 'question', 'in_doubt') AND s.status = ANY ($2::text[])
    AND (s.created_at, s.id) > ($3, $4) AND s.run IN (
        SELECT r.run FROM runs r WHERE r.tenant = $1 AND r.id = $6::text
        UNION ALL
        SELECT r.run FROM threads t JOIN runs r ON r.thread = t.thread
        WHERE $6::text IS NULL AND t.tenant = $1 AND t.id = $7
    )
    AND ($7::text IS NULL OR s.thread_id = $7)
ORDER BY s.created_at, s.id LIMIT $5
