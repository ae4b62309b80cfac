UPDATE nodes SET expires_at = now_ms($2) + $3 WHERE node = $1 RETURNING node
