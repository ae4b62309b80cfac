SELECT g.id, g.given_by, g.tool, g.agent, g.definition, g.reasons, g.since, t.id
FROM grants g JOIN threads t ON t.thread = g.thread
WHERE g.tenant = $1 AND NOT g.revoked AND (g.since, g.id) < ($2, $3) AND (
    $5::text IS NULL OR g.given_by = $5
    OR left(g.given_by, length($5) + 1) = $5 || chr(31) OR right(g.given_by, length($5) + 1) = chr(31) || $5
)
ORDER BY g.since DESC, g.id DESC LIMIT $4
