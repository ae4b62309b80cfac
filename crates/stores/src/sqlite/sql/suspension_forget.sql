UPDATE suspensions SET answered_by = NULL WHERE run = ?1 AND status = 'pending' AND answered_by = ?2
