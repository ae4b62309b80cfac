SELECT t.auto_approved_by, l.given_by, l.definition
FROM runs r JOIN threads t ON t.thread = r.thread LEFT JOIN leave l ON l.thread = r.thread AND l.tool = $2 AND NOT l.taken_back
WHERE r.run = $1
