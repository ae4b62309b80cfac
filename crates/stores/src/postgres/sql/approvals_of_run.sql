-- `$10`: include the suspensions of the runs that these runs delegated to.
WITH RECURSIVE asked AS (
    SELECT r.run FROM runs r WHERE r.tenant = $1 AND r.id = $6
    UNION ALL
    SELECT r.run FROM threads t JOIN runs r ON r.thread = t.thread
    WHERE $6::text IS NULL AND t.tenant = $1 AND t.id = $7
), tree AS (
    SELECT run FROM asked
    UNION
    SELECT c.run FROM tree JOIN runs c ON c.parent = tree.run WHERE $10::boolean
), found AS (
    -- One run after the other, by the index: a join could scan the suspensions of every run.
    SELECT s.id FROM tree CROSS JOIN LATERAL (SELECT * FROM suspensions o WHERE o.run = tree.run OFFSET 0) s
    WHERE s.kind IN ('approval', 'question', 'in_doubt')
        AND CASE WHEN s.answered_by IS NULL THEN s.status = ANY ($2::text[]) ELSE $8 END
        AND (s.created_at, s.id) > ($3, $4)
        AND ($6::text IS NULL OR coalesce(s.closed_seq, s.seq) > $9
            OR (s.closed_seq IS NULL AND s.answered_by IS NOT NULL))
    ORDER BY s.created_at, s.id LIMIT $5
)
SELECT s.* FROM found f JOIN suspensions_shown s ON s.tenant = $1 AND s.id = f.id
ORDER BY s.created_at, s.id
