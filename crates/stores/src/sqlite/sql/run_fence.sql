SELECT r.tenant, r.id, r.seq, r.epoch, r.thread, r.holds, r.interrupt_accepted, t.id
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.row = ?1
