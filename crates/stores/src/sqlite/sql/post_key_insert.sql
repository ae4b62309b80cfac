INSERT INTO post_keys (tenant, thread, scope, run, body, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
