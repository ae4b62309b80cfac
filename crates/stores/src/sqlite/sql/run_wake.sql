UPDATE runs SET
    version = version + 1, ready_at = CASE WHEN ready = 1 THEN ready_at ELSE ?2 END, ready = 1,
    interrupt_accepted = interrupt_accepted OR ?3
WHERE row = ?1
