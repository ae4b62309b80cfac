SELECT s.* FROM unnest($2::text[]) AS a (status)
CROSS JOIN LATERAL (
    SELECT f.id FROM suspensions f
    WHERE f.tenant = $1 AND f.status = a.status AND f.kind IN ('approval', 'question', 'in_doubt')
        AND (f.created_at, f.id) > ($3, $4)
    ORDER BY f.created_at, f.id LIMIT $5
) AS found
JOIN suspensions_shown s ON s.tenant = $1 AND s.id = found.id
ORDER BY s.created_at, s.id LIMIT $5
