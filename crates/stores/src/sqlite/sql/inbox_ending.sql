SELECT EXISTS (
    SELECT 1 FROM inbox i CROSS JOIN suspensions s ON s.run = i.run AND s.status = 'pending' AND s.answered_by = i.ticket
    WHERE i.run = ?1 AND i.ends_run = 1
)
