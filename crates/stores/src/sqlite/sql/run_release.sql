UPDATE runs SET
    ready_at = ?2, ready = CASE WHEN status = 'queued' THEN 2 ELSE 1 END
WHERE row = ?1 AND ready = 0
    AND (status IN ('running', 'interrupting') OR (status = 'queued' AND holds = 1))
