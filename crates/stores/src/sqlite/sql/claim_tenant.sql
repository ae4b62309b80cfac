SELECT tenant FROM runs WHERE ready = 2 AND tenant > ?1 ORDER BY tenant LIMIT 1
