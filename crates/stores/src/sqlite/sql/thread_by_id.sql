SELECT row, created_at, metadata, head, auto_approved_by FROM threads WHERE tenant = ?1 AND id = ?2
