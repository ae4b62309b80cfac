INSERT INTO decisions (tenant, run, id, decision) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (run, id) DO NOTHING
