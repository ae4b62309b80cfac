-- Partitions are counted with their table.
SELECT coalesce(whole.relname, c.relname)::text, sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_class whole ON whole.oid = i.inhparent
WHERE n.nspname = $1::text AND c.relkind = 'r'
GROUP BY 1 ORDER BY sum(pg_total_relation_size(c.oid)) DESC, 1
