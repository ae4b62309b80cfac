SELECT first_seq, last_seq, checkpoint, body FROM commits WHERE run = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
