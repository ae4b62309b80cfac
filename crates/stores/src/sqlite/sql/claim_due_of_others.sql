SELECT row, wake_at FROM runs
WHERE wake_at IS NOT NULL AND (ready <> 0 OR status IN ('queued', 'waiting_approval', 'waiting_tool'))
    AND tenant <> ?1 AND wake_at <= ?2
ORDER BY wake_at, row
