UPDATE suspensions SET answered_by =
    (SELECT ticket FROM inbox WHERE run = ?3 AND kind = 'early' AND call = ?4 AND arguments = ?5)
WHERE tenant = ?1 AND id = ?2 AND status = 'pending'
