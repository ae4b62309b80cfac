SELECT p.plugin, p.key, p.value FROM runs r JOIN plugin_state p ON p.thread = r.thread AND p.run = ?2
WHERE r.row = ?1 ORDER BY p.plugin, p.key
