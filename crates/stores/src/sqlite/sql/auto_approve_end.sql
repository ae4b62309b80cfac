DELETE FROM grants WHERE thread = ?1 AND tool IS NULL AND revoked = 0
