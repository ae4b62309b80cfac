UPDATE nodes SET expires_at = greatest(started_at, now_ms($2) + $3) WHERE node = $1 RETURNING node
