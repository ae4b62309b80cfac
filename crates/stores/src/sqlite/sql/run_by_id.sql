SELECT row, interrupt_accepted, ended_at IS NOT NULL, control FROM runs WHERE tenant = ?1 AND id = ?2
