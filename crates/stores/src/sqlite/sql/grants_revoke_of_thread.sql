UPDATE grants SET revoked = 1 WHERE thread = ?1 AND revoked = 0 AND (?2 OR tool IS NULL)
