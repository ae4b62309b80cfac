INSERT INTO inbox (tenant, run, kind, call, arguments, item) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
