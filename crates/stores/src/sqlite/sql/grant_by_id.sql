SELECT g.id, g.given_by, g.tool, g.agent, g.definition, g.reasons, g.since, t.id
FROM grants g JOIN threads t ON t.row = g.thread
WHERE g.tenant = ?1 AND g.id = ?2 AND g.revoked = 0
