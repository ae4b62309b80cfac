SELECT r.id, m.seq, m.role
FROM threads t JOIN messages m ON m.thread = t.thread JOIN runs r ON r.run = m.run
WHERE t.tenant = $1 AND t.id = $2 AND m.id = $3
