SELECT r.seq, c.row IS NOT NULL, c.hash
FROM runs r LEFT JOIN commits c ON c.run = r.row AND c.last_seq = ?3
WHERE r.tenant = ?1 AND r.id = ?2
