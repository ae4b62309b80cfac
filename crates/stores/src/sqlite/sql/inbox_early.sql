SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ?1 AND kind = 'early' AND call = ?2)
