UPDATE suspensions SET answered_by = ?3 WHERE run = ?1 AND call = ?2 AND status = 'pending'
