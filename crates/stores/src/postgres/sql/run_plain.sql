SELECT r.seq, t.id, r.agent, p.id, r.parent_call, greatest(r.created_at, r.started_at), r.control, r.interrupt_accepted,
    ARRAY(SELECT s.call FROM suspensions s WHERE s.run = r.run AND s.status = 'pending' ORDER BY s.seq, s.id),
    ARRAY(SELECT s.id FROM suspensions s WHERE s.run = r.run AND s.status = 'pending' ORDER BY s.seq, s.id),
    ARRAY(SELECT s.kind FROM suspensions s WHERE s.run = r.run AND s.status = 'pending' ORDER BY s.seq, s.id),
    ARRAY(SELECT c.id FROM runs c WHERE c.parent = r.run AND c.ended_at IS NULL ORDER BY c.run),
    ARRAY(SELECT i.ticket FROM inbox i WHERE i.run = r.run ORDER BY i.ticket),
    ARRAY(SELECT i.item FROM inbox i WHERE i.run = r.run ORDER BY i.ticket), r.version
FROM runs r JOIN threads t ON t.thread = r.thread LEFT JOIN runs p ON p.run = r.parent
WHERE r.run = $1 AND r.tenant = $2 AND r.id = $3 AND r.epoch = $4 AND r.node = $5 AND r.ended_at IS NULL
