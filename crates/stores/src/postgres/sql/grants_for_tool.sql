SELECT g.id, g.given_by, g.tool, g.agent, g.definition, g.reasons
FROM runs r JOIN grants g ON g.thread = r.thread
WHERE r.run = $1 AND (g.tool IS NULL OR g.tool = $2) AND NOT g.revoked
ORDER BY g.tool IS NOT NULL, g.since DESC, g.id DESC LIMIT $3
