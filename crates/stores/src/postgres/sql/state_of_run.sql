SELECT p.run = 0, p.plugin, p.key, p.value
FROM runs r JOIN plugin_state p ON p.thread = r.thread AND p.run IN (r.run, 0)
WHERE r.run = $1 ORDER BY p.run = 0, p.plugin, p.key
