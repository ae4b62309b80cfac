SELECT row, created_at, metadata, head,
    (SELECT given_by FROM grants g WHERE g.thread = t.row AND g.tool IS NULL AND g.revoked = 0), id
FROM threads t
WHERE tenant = ?1 AND (created_at, id) < (?2, ?3)
ORDER BY created_at DESC, id DESC LIMIT ?4
