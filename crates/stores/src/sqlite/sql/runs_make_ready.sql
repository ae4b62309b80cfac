UPDATE runs SET ready_at = ?1, ready = CASE WHEN status = 'queued' THEN 2 ELSE 1 END
WHERE ready = 0 AND status IN ('queued', 'running', 'interrupting') AND (status <> 'queued' OR holds = 1)
