SELECT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_by_deadline
    WHERE wake_at IS NOT NULL AND (ready <> 0 OR status IN ('queued', 'waiting_approval', 'waiting_tool'))
        AND wake_at = ?1 AND row = ?2
)
