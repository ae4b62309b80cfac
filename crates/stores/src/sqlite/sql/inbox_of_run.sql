SELECT ticket, item FROM inbox WHERE run = ?1 ORDER BY ticket
