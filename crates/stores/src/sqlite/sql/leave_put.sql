INSERT INTO leave (tenant, thread, tool, given_by, definition) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE SET given_by = excluded.given_by, definition = excluded.definition, taken_back = 0
