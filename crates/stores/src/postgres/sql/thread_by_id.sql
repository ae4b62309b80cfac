SELECT id, created_at, metadata::text, head, auto_approved_by, front, front_status, front_in_doubt, queued,
    approved_tools, thread, descendant_statuses
FROM threads_shown WHERE tenant = $1 AND id = $2
