WITH auto_approve AS (
    DELETE FROM grants WHERE tenant = $1 AND id = $2 AND tool IS NULL RETURNING id
), of_an_approval AS (
    UPDATE grants SET revoked = true
    WHERE tenant = $1 AND id = $2 AND tool IS NOT NULL AND NOT revoked RETURNING id
)
SELECT id FROM auto_approve UNION ALL SELECT id FROM of_an_approval
