SELECT EXISTS (
    SELECT FROM runs
    WHERE thread = (SELECT t.thread FROM threads t WHERE t.tenant = $1 AND t.id = $2)
        AND agent <> ALL ($3::text[])
)
