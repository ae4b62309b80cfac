SELECT r.row, r.tenant, t.id, r.id, r.seq, r.chain_head
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.row > ?1 AND (?2 IS NULL OR r.tenant = ?2)
ORDER BY r.row LIMIT ?3
