-- Numbers are given out while the thread is locked, so they grow in the order of admission. Materialized: the planner must
-- not walk the runs of all threads by number.
WITH found AS MATERIALIZED (
    SELECT thread FROM threads WHERE tenant = $1 AND id = $2
), of_thread AS MATERIALIZED (
    SELECT r.run, r.id FROM found f JOIN runs r ON r.thread = f.thread
)
SELECT f.thread, s.run, n.run, n.id
FROM found f
CROSS JOIN LATERAL (
    SELECT CASE WHEN $3::text IS NULL THEN 0 ELSE (SELECT o.run FROM of_thread o WHERE o.id = $3) END AS run
) AS s
LEFT JOIN LATERAL (
    SELECT o.run, o.id FROM of_thread o WHERE o.run > s.run ORDER BY o.run LIMIT $4
) AS n ON true
ORDER BY n.run
