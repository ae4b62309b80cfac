SELECT id, row, interrupt_accepted, holds FROM runs WHERE thread = ?1 AND holds = 1
UNION ALL
SELECT id, row, interrupt_accepted, holds FROM runs WHERE thread = ?1 AND holds = 0 AND ended_at IS NULL
ORDER BY holds DESC, row
