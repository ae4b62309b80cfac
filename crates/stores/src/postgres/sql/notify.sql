-- Without waiting for a disk: a lost notification is recovered by polling.
SELECT pg_notify($1, note)
FROM set_config('synchronous_commit', 'off', true), unnest($2::text[]) AS note
