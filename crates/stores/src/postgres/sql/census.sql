WITH RECURSIVE
    -- From one tenant to the next without a look at what is between them.
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
-- Answers that approve: in no other answer do these words stand outside a text.
SELECT 'approved', count(*) FROM inbox i JOIN suspensions s ON s.run = i.run AND s.answered_by = i.ticket
WHERE s.status = 'pending' AND s.kind = 'approval' AND position('"action":{"resume":' IN i.item) > 0
