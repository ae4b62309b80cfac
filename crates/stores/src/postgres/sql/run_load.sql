SELECT r.run, r.tenant, r.id, t.id, r.epoch, r.holds, coalesce(r.begins_after, t.head), r.doubt_at, r.control,
    ARRAY(SELECT i.ticket FROM inbox i WHERE i.run = r.run ORDER BY i.ticket),
    ARRAY(SELECT i.item FROM inbox i WHERE i.run = r.run ORDER BY i.ticket)
FROM runs r JOIN threads t ON t.thread = r.thread
WHERE r.run = $1 AND r.node = $2 AND r.epoch = $3 AND EXISTS (SELECT 1 FROM nodes n WHERE n.node = $2)
