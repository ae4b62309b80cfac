INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
