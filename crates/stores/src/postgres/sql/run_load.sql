SELECT * FROM load_held($1, $2, $3)
