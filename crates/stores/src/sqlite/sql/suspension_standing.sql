SELECT status = 'pending', answered_by, call FROM suspensions WHERE tenant = ?1 AND id = ?2 AND run = ?3
