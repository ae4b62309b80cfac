SELECT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_interrupted
    WHERE ready = 1 AND interrupt_accepted = 1 AND ready_at = ?1 AND row = ?2
)
