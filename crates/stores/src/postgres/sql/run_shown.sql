SELECT r.run, r.change, r.interrupt_accepted, r.control,
    EXISTS (
        SELECT 1 FROM suspensions s
        WHERE s.run = r.run AND s.call = $3 AND s.status = 'pending' AND s.answered_by IS NOT NULL
    ),
    $5 AND EXISTS (SELECT 1 FROM inbox i WHERE i.run = r.run AND i.kind = 'early' AND i.call = $3),
    (SELECT d.decision FROM decisions d WHERE d.run = r.run AND d.id = $4),
    end_accepted(r.run), r.ended_at IS NOT NULL
FROM runs r WHERE r.tenant = $1 AND r.id = $2
