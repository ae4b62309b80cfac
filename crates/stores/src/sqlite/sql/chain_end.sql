SELECT c.first_seq, c.last_seq, c.checkpoint, c.body, c.hash,
    (SELECT b.hash FROM commits b WHERE b.run = c.run AND b.last_seq = c.first_seq - 1)
FROM commits c WHERE c.run = ?1 ORDER BY c.last_seq DESC LIMIT 1
