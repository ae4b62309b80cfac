SELECT m.place, m.id, r.id, m.seq, split_part(c.body, E'\n', (m.seq - c.first_seq + 1)::integer), m.role
FROM threads t
LEFT JOIN LATERAL (
    SELECT * FROM messages WHERE thread = t.thread AND place < $3 ORDER BY place DESC LIMIT $4
) AS m ON true
LEFT JOIN runs r ON r.run = m.run
LEFT JOIN LATERAL (
    SELECT first_seq, body FROM commits WHERE commits.run = m.run AND last_seq >= m.seq ORDER BY last_seq LIMIT 1
) AS c ON true
WHERE t.tenant = $1 AND t.id = $2 ORDER BY m.place DESC
