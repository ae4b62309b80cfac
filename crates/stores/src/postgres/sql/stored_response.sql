SELECT a.body, a.status, a.answer FROM runs r JOIN remembered a ON a.run = r.run
WHERE r.tenant = $1 AND r.id = $2 AND a.scope = $3
