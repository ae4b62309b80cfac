-- `$6`: include pending suspensions. The status `pending` in `$2` means answered and not processed yet.
SELECT s.* FROM (
    (
        SELECT p.created_at, p.id FROM suspensions p
        WHERE $6::boolean AND p.tenant = $1 AND p.status = 'pending' AND p.answered_by IS NULL
            AND p.kind IN ('approval', 'question', 'in_doubt') AND (p.created_at, p.id) > ($3, $4)
        ORDER BY p.created_at, p.id LIMIT $5
    )
    UNION ALL
    SELECT rest.created_at, rest.id FROM unnest($2::text[]) AS a (status)
    CROSS JOIN LATERAL (
        SELECT f.created_at, f.id FROM suspensions f
        WHERE f.tenant = $1 AND f.status = a.status AND (f.status <> 'pending' OR f.answered_by IS NOT NULL)
            AND f.kind IN ('approval', 'question', 'in_doubt') AND (f.created_at, f.id) > ($3, $4)
        ORDER BY f.created_at, f.id LIMIT $5
    ) AS rest
) AS found
JOIN suspensions_shown s ON s.tenant = $1 AND s.id = found.id
ORDER BY s.created_at, s.id LIMIT $5
