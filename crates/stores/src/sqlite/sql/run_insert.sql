INSERT INTO runs (
    tenant, id, thread, agent, parent, parent_call, begins_after, promised, status, holds, seq, epoch,
    interrupt_accepted, in_doubt, ready, ready_at, wake_at, created_at, started_at, ended_at, control, chain_head,
    chain_from
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
