INSERT INTO call_ids (tenant, thread, id) VALUES (?1, ?2, ?3)
