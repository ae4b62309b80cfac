SELECT g.id, g.given_by, g.tool, g.agent, g.definition, g.reasons, g.since, t.id
FROM grants g JOIN threads t ON t.row = g.thread
WHERE g.tenant = ?1 AND g.revoked = 0 AND (g.since, g.id) < (?2, ?3) AND (
    ?5 IS NULL OR g.given_by = ?5
    OR substr(g.given_by, 1, length(?5) + 1) = ?5 || char(31) OR substr(g.given_by, -length(?5) - 1) = char(31) || ?5
)
ORDER BY g.since DESC, g.id DESC LIMIT ?4
