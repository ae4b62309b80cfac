SELECT c.outcome, c.queued, g.* FROM claim_next($1, $2, $3, $4, $5, $6, $7) c LEFT JOIN LATERAL assigned_runs(c.taken) g ON true
