SELECT id, created_at, metadata::text, head, auto_approved_by, front, front_status, front_in_doubt, queued,
    approved_tools, thread, descendant_statuses
FROM threads_shown WHERE tenant = $1 AND (created_at, id) < ($2, $3)
ORDER BY created_at DESC, id DESC LIMIT $4
