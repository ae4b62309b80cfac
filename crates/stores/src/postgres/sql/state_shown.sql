SELECT p.run = 0, p.plugin, p.key, p.value
FROM runs r LEFT JOIN plugin_state p ON p.thread = r.thread AND p.run IN (r.run, 0)
WHERE r.tenant = $1 AND r.id = $2 ORDER BY p.run = 0, p.plugin, p.key
