SELECT id, answered_by FROM suspensions WHERE run = ?1 AND call = ?2 AND status = 'pending'
