SELECT row, created_at, metadata, head, auto_approved_by, id FROM threads
WHERE tenant = ?1 AND (created_at, id) < (?2, ?3)
ORDER BY created_at DESC, id DESC LIMIT ?4
