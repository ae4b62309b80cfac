SELECT count(*) FROM (
    SELECT 1 FROM suspensions INDEXED BY suspensions_pending
    WHERE tenant = ?1 AND status = 'pending' AND answered_by IS NULL AND kind IN ('approval', 'question', 'in_doubt')
    LIMIT ?2
)
