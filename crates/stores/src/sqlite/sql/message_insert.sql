INSERT INTO messages (tenant, thread, id, run, seq, role) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
