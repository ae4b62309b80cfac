SELECT i.item FROM suspensions s JOIN inbox i ON i.ticket = s.answered_by WHERE s.tenant = ?1 AND s.id = ?2
