SELECT d.decision FROM runs r JOIN decisions d ON d.run = r.run WHERE r.tenant = $1 AND r.id = $2 AND d.id = $3
