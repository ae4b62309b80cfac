SELECT r.tenant, r.id, r.epoch, r.ready, r.wake_at, r.holds, r.ended_at IS NOT NULL, r.begins_after,
    t.id, t.head, r.status, EXISTS (SELECT 1 FROM inbox i WHERE i.run = r.row), r.control, r.version,
    r.seq, r.chain_from, r.chain_head
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.row = ?1
