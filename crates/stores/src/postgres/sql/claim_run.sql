SELECT * FROM claim_run($1, $2, $3, $4)
