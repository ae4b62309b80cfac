SELECT id, status, in_doubt FROM runs WHERE thread = ?1 AND holds = 1
