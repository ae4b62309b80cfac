-- `+` keeps the planner from walking the runs of all threads by row.
SELECT id FROM runs WHERE thread = ?1 AND +row > ?2 ORDER BY +row LIMIT ?3
