SELECT tool FROM leave WHERE thread = ?1 AND taken_back = 0 ORDER BY tool
