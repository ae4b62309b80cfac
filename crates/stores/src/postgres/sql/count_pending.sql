SELECT count(*) FROM (
    SELECT 1 FROM suspensions
    WHERE tenant = $1 AND status = 'pending' AND answered_by IS NULL AND kind IN ('approval', 'question', 'in_doubt')
    LIMIT $2
) AS counted
