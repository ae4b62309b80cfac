INSERT INTO threads (tenant, id, created_at, metadata) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING
