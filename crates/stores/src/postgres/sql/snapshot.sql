SELECT n.now,
    EXISTS (SELECT 1 FROM runs WHERE ready = 1 AND node IS NULL)
        OR EXISTS (SELECT 1 FROM runs WHERE wake_at <= n.now AND wake_at IS NOT NULL AND node IS NULL)
        OR EXISTS (SELECT 1 FROM runs WHERE ready = 2 AND node IS NULL),
    (SELECT min(expires_at) FROM nodes WHERE node IS DISTINCT FROM $1::bigint),
    ARRAY(SELECT r.run FROM runs r WHERE r.node = $1 AND r.ready = 1 ORDER BY r.run),
    ARRAY(
        SELECT coalesce((SELECT max(i.ticket) FROM inbox i WHERE i.run = r.run), 0)
        FROM runs r WHERE r.node = $1 AND r.ready = 1 ORDER BY r.run
    ),
    ARRAY(
        SELECT r.run FROM unnest($3::bigint[], $4::bigint[]) AS w (run, seq)
        JOIN runs r ON r.run = w.run WHERE r.seq > w.seq AND r.node IS DISTINCT FROM $1
    ),
    ARRAY(SELECT node FROM nodes),
    -- A thread is gone, or has a run after the last one that was read. The clocks of nodes differ by less than a minute;
    -- `+ 0` keeps the planner from walking the runs of all threads by number.
    ARRAY(
        SELECT w.thread FROM unnest($5::bigint[], $6::bigint[]) AS w (thread, run) LEFT JOIN runs l ON l.run = w.run
        WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = w.thread) OR EXISTS (
            SELECT 1 FROM runs r
            WHERE r.thread = w.thread AND r.created_at >= coalesce(l.created_at, 0) - 60000 AND r.run + 0 > w.run
        )
    )
FROM (SELECT now_ms($2) AS now) AS n
