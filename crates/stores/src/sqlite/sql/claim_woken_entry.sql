SELECT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_woken
    WHERE ready = 1 AND ready_at = ?1 AND row = ?2
)
