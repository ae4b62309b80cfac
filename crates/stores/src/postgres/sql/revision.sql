SELECT b.text FROM threads t JOIN brought b ON b.thread = t.thread WHERE t.tenant = $1 AND t.id = $2 AND b.digest = $3
UNION ALL SELECT text FROM revisions WHERE digest = $3 LIMIT 1
