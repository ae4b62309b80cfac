SELECT c.outcome, 0, g.* FROM claim_run($1, $2, $3, $4) c LEFT JOIN LATERAL given(c.taken) g ON true
