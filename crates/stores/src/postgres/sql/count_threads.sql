SELECT count(*) FROM (SELECT 1 FROM threads WHERE tenant = $1 LIMIT $2) AS counted
