-- A thread as admission sees it: the front run is the holder, or the first queued run while no run holds the thread. The
-- unended runs that work for it, directly or through others, are its descendants.
CREATE VIEW threads_shown AS
SELECT
    t.thread, t.tenant, t.id, t.created_at, t.metadata,
    (SELECT g.given_by FROM grants g WHERE g.thread = t.thread AND g.tool IS NULL AND NOT g.revoked LIMIT 1) AS auto_approved_by,
    (SELECT m.id FROM messages m WHERE m.thread = t.thread ORDER BY m.place DESC LIMIT 1) AS head,
    f.id AS front, f.status AS front_status, f.in_doubt OR b.in_doubt AS front_in_doubt,
    b.statuses AS descendant_statuses,
    (SELECT count(*) FROM runs q WHERE q.thread = t.thread AND q.ended_at IS NULL AND NOT q.holds) AS queued,
    ARRAY(
        SELECT DISTINCT g.tool FROM grants g
        WHERE g.thread = t.thread AND g.tool IS NOT NULL AND NOT g.revoked ORDER BY g.tool
    ) AS approved_tools
FROM threads t
LEFT JOIN LATERAL (
    SELECT r.run, r.id, r.status, r.in_doubt FROM runs r
    WHERE r.thread = t.thread AND r.ended_at IS NULL
    ORDER BY r.holds DESC, r.run LIMIT 1
) f ON true
CROSS JOIN LATERAL (
    WITH RECURSIVE below AS (
        -- The children of one run after the other, by their index: another plan could scan every unended run.
        SELECT c.run, c.status, c.in_doubt FROM (SELECT * FROM runs o WHERE o.parent = f.run OFFSET 0) c
        WHERE c.ended_at IS NULL
        UNION
        SELECT c.run, c.status, c.in_doubt FROM below
        CROSS JOIN LATERAL (SELECT * FROM runs o WHERE o.parent = below.run OFFSET 0) c
        WHERE c.ended_at IS NULL
    )
    SELECT coalesce(array_agg(below.status), '{}') AS statuses, coalesce(bool_or(below.in_doubt), false) AS in_doubt
    FROM below
) b;

-- A suspension with the commit that opened it, the answer that its run has not processed, and the path of runs above
-- it. No run is nested deeper than 64.
CREATE VIEW suspensions_shown AS
SELECT
    s.*, (SELECT i.item FROM inbox i WHERE i.ticket = s.answered_by) AS answer, r.id AS run_id, r.agent, t.id AS thread_id, c.first_seq, c.body,
    p.runs AS above_runs, p.threads AS above_threads, p.agents AS above_agents, p.calls AS above_calls
FROM suspensions s
JOIN runs r ON r.run = s.run
JOIN threads t ON t.thread = r.thread
LEFT JOIN LATERAL (
    SELECT first_seq, body FROM commits WHERE commits.run = s.run AND last_seq >= s.seq ORDER BY last_seq LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    WITH RECURSIVE above AS (
        SELECT r.parent, r.parent_call, 1 AS depth WHERE r.parent IS NOT NULL
        UNION ALL
        SELECT a.parent, a.parent_call, above.depth + 1
        FROM above JOIN runs a ON a.run = above.parent
        WHERE a.parent IS NOT NULL AND above.depth < 63
    )
    SELECT
        coalesce(array_agg(a.id ORDER BY above.depth DESC), '{}') AS runs,
        coalesce(array_agg(t.id ORDER BY above.depth DESC), '{}') AS threads,
        coalesce(array_agg(a.agent ORDER BY above.depth DESC), '{}') AS agents,
        coalesce(array_agg(above.parent_call ORDER BY above.depth DESC), '{}') AS calls
    FROM above JOIN runs a ON a.run = above.parent JOIN threads t ON t.thread = a.thread
) p;
