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
))::bigint
FROM tenants, unended WHERE tenants.name IS NOT NULL GROUP BY unended.status
UNION ALL
SELECT 'inbox', count(*) FROM inbox
UNION ALL
-- Answers that approve. Only an approving answer contains these characters outside a JSON string.
SELECT 'approved', count(*) FROM inbox i JOIN suspensions s ON s.run = i.run AND s.answered_by = i.ticket
WHERE s.status = 'pending' AND s.kind = 'approval' AND position('"action":{"resume":' IN i.item) > 0
