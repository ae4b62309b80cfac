SELECT EXISTS (
        SELECT 1 FROM messages WHERE thread = ?1 AND id = 'msg_' || ?2 AND NOT (run = ?3 AND role = 'tool')
    )
    OR EXISTS (SELECT 1 FROM runs WHERE thread = ?1 AND promised = 'msg_' || ?2)
