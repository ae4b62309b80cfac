INSERT INTO messages (tenant, thread, id, run, seq, role, place)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(place), 0) + 1 FROM messages WHERE thread = ?2))
