SELECT row, created_at, metadata, head,
    (SELECT given_by FROM grants g WHERE g.thread = t.row AND g.tool IS NULL AND g.revoked = 0)
FROM threads t WHERE tenant = ?1 AND id = ?2
