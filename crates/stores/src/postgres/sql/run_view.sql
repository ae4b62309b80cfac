SELECT r.id, r.status, r.interrupt_accepted, r.created_at, r.started_at, r.ended_at, t.id, r.run, r.control, r.agent, r.seq,
    c.*
FROM runs r JOIN threads t ON t.thread = r.thread CROSS JOIN LATERAL chain_end(r.run) AS c
WHERE r.tenant = $1 AND r.id = $2
