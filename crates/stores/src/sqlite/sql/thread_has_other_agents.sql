SELECT EXISTS (
    SELECT 1 FROM runs
    WHERE thread = (SELECT row FROM threads WHERE tenant = ?1 AND id = ?2)
        AND agent NOT IN (SELECT value FROM json_each(?3))
)
