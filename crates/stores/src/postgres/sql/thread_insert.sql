INSERT INTO threads (tenant, id, created_at, metadata) VALUES ($1, $2, now_ms($4), $3::text::json)
ON CONFLICT (tenant, id) DO NOTHING RETURNING thread
