UPDATE runs SET
    seq = ?2, version = version + 1, epoch = ?3, status = ?4, holds = ?5, wake_at = ?6, in_doubt = ?7,
    interrupt_accepted = interrupt_accepted OR ?8,
    started_at = coalesce(started_at, ?9), ended_at = ?10, control = ?11,
    promised = CASE WHEN started_at IS NULL AND ?9 IS NULL AND ?10 IS NULL THEN promised END,
    ready = ?12, ready_at = CASE WHEN ?12 = 0 THEN NULL WHEN ready = ?12 THEN ready_at ELSE ?13 END,
    chain_head = coalesce(?14, chain_head), chain_from = coalesce(chain_from, ?15)
WHERE row = ?1
