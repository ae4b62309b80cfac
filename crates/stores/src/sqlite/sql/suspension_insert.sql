INSERT INTO suspensions (tenant, id, run, seq, call, kind, status, arguments, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?8, ?9)
