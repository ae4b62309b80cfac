SELECT row, ready_at FROM runs WHERE ready = 1 AND tenant <> ?1 ORDER BY ready_at, row
