INSERT INTO plugin_state (tenant, thread, run, plugin, key, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT DO UPDATE SET value = excluded.value
