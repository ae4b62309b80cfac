SELECT r.id, r.agent, r.parent, r.parent_call, t.id FROM runs r JOIN threads t ON t.row = r.thread WHERE r.row = ?1
