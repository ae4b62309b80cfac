WITH RECURSIVE below (row, status, in_doubt) AS (
    SELECT row, status, in_doubt FROM runs WHERE parent = ?1 AND ended_at IS NULL
    UNION
    SELECT r.row, r.status, r.in_doubt FROM below CROSS JOIN runs r ON r.parent = below.row AND r.ended_at IS NULL
)
SELECT status, in_doubt FROM below
