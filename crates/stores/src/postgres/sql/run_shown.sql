SELECT r.run, r.version, r.control,
    ARRAY(SELECT i.item FROM inbox i WHERE i.run = r.run ORDER BY i.ticket),
    (SELECT d.decision FROM decisions d WHERE d.run = r.run AND d.id = $3)
FROM runs r WHERE r.tenant = $1 AND r.id = $2
