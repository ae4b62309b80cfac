UPDATE runs SET
    holds = 1,
    ready_at = CASE WHEN ready = 0 THEN ?2 ELSE ready_at END,
    ready = CASE WHEN ready = 0 THEN 2 ELSE ready END
WHERE row = ?1
