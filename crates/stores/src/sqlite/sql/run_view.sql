SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.row, r.control, r.agent, r.seq,
    r.chain_from, r.chain_head
FROM runs r JOIN threads t ON t.row = r.thread
WHERE r.tenant = ?1 AND r.id = ?2
