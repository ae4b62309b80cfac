SELECT c.outcome, l.* FROM claim_run($1, $2, $3, $4) c LEFT JOIN LATERAL loaded(c.taken) l ON true
