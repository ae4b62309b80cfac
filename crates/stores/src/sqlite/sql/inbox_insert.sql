INSERT INTO inbox (tenant, run, kind, call, arguments, item, ends_run) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
