INSERT INTO remembered (tenant, run, scope, body, status, seal, answer) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
