SELECT m.place, m.id, r.id, m.run, m.seq, m.role FROM messages m CROSS JOIN runs r ON r.row = m.run
WHERE m.thread = ?1 AND m.place < ?2 ORDER BY m.place DESC LIMIT ?3
