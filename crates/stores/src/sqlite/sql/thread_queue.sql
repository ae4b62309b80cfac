SELECT id, status, in_doubt, row FROM runs WHERE thread = ?1 AND holds = 0 AND ended_at IS NULL ORDER BY row
