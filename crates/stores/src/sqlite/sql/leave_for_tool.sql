SELECT t.auto_approved_by, l.given_by, l.definition
FROM runs r JOIN threads t ON t.row = r.thread LEFT JOIN leave l ON l.thread = r.thread AND l.tool = ?2 AND l.taken_back = 0
WHERE r.row = ?1
