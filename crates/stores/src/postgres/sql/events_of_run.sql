SELECT c.first_seq, c.last_seq, c.checkpoint, c.body, r.run
FROM runs r LEFT JOIN LATERAL (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY last_seq) - octet_length(body) AS bytes_before FROM (
        SELECT * FROM commits WHERE commits.run = r.run AND last_seq > $3 ORDER BY last_seq LIMIT $4
    ) AS next
) AS c ON c.bytes_before < $5
WHERE r.tenant = $1 AND r.id = $2 ORDER BY c.last_seq
