SELECT EXISTS (SELECT 1 FROM messages WHERE thread = ?1 AND id = ?2)
    OR EXISTS (SELECT 1 FROM runs WHERE thread = ?1 AND promised = ?2)
    OR (substr(?2, 1, 4) = 'msg_' AND EXISTS (SELECT 1 FROM call_ids WHERE thread = ?1 AND id = substr(?2, 5)))
