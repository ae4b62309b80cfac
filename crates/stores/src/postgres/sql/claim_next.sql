SELECT c.outcome, c.queued, l.* FROM claim_next($1, $2, $3, $4) c LEFT JOIN LATERAL loaded(c.taken) l ON true
