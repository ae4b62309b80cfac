SELECT * FROM load_held($1, $2, $3, $4, $5)
