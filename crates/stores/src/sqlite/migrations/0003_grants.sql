-- Standing permissions: what approvals granted for later calls, and auto-approve of a thread.
CREATE TABLE grants (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    -- NULL where it is for every tool and agent of the thread, and then the next three are NULL too.
    tool TEXT,
    -- NULL also in a grant from before grants named their agent.
    agent TEXT,
    definition BLOB CHECK (length(definition) = 32),
    reasons TEXT,
    given_by TEXT NOT NULL,
    since INTEGER NOT NULL,
    -- It counts no more. The row stays: the log says that the grant was given.
    revoked INTEGER NOT NULL DEFAULT 0 CHECK (revoked IN (0, 1)),
    PRIMARY KEY (tenant, id),
    CHECK ((tool IS NULL) = (definition IS NULL) AND (tool IS NULL) = (reasons IS NULL)),
    CHECK (tool IS NOT NULL OR agent IS NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX grants_of_thread ON grants (thread, tool);
CREATE INDEX grants_newest ON grants (tenant, since, id) WHERE revoked = 0;

-- Nobody recorded which agent and which reason these were given for: they lift the tool's own `approval = "ask"` alone.
INSERT INTO grants (tenant, id, thread, tool, definition, reasons, given_by, since, revoked)
SELECT l.tenant, 'grt_before_' || row_number() OVER (ORDER BY l.thread, l.tool), l.thread, l.tool, l.definition, '["tool"]',
    l.given_by, t.created_at, l.taken_back
FROM leave l JOIN threads t ON t.row = l.thread;

INSERT INTO grants (tenant, id, thread, given_by, since)
SELECT tenant, 'grt_before_thread_' || row, row, auto_approved_by, created_at
FROM threads WHERE auto_approved_by IS NOT NULL;

DROP TABLE leave;
ALTER TABLE threads DROP COLUMN auto_approved_by;
