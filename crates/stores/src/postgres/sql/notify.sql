-- Nobody waits for a disk: what is told is told by then, or looked for by whoever was not told.
SELECT pg_notify($1, note)
FROM set_config('synchronous_commit', 'off', true), unnest($2::text[]) AS note
