SELECT id, status, in_doubt, row FROM runs WHERE thread = ?1 AND holds = 1
