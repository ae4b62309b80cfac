UPDATE grants SET revoked = 1 WHERE thread = ?1 AND tool IS NOT NULL AND revoked = 0
