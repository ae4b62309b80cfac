SELECT r.tenant, r.id, r.seq, r.epoch, r.thread, r.holds, t.id, r.version, r.chain_head
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.row = ?1
