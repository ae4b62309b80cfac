SELECT g.id, g.given_by, g.tool, g.agent, g.definition, g.reasons, g.since, t.id
FROM grants g JOIN threads t ON t.thread = g.thread
WHERE g.tenant = $1 AND g.id = $2 AND NOT g.revoked
