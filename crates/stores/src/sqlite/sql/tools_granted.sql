SELECT DISTINCT tool FROM grants WHERE thread = ?1 AND revoked = 0 AND tool IS NOT NULL ORDER BY tool
