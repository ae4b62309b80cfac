WITH RECURSIVE
    -- Skips from one tenant to the next in the index, without reading the rows between them.
    tenants (name) AS (
        SELECT min(tenant) FROM runs
        UNION ALL
        SELECT (SELECT min(tenant) FROM runs WHERE tenant > name) FROM tenants WHERE name IS NOT NULL
    ),
    unended (status) AS (
        VALUES ('queued'), ('running'), ('waiting_approval'), ('waiting_tool'), ('interrupting')
    )
SELECT unended.status, sum((
    SELECT count(*) FROM runs WHERE runs.tenant = tenants.name AND runs.status = unended.status
))
FROM tenants, unended WHERE tenants.name IS NOT NULL GROUP BY unended.status
