SELECT first_seq, last_seq, checkpoint, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY last_seq) - octet_length(body) AS bytes_before FROM (
        SELECT * FROM commits WHERE run = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
    ) AS next
) AS counted
WHERE bytes_before < $4 ORDER BY last_seq
