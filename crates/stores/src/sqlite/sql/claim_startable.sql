SELECT row, ready_at FROM runs WHERE ready = 2 AND tenant = ?1 AND (ready_at, row) > (?2, ?3)
ORDER BY ready_at, row LIMIT 1
