-- Standing permissions: what approvals granted for later calls, and auto-approve of a thread.
CREATE TABLE grants (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    thread bigint NOT NULL REFERENCES threads (thread),
    -- NULL where it is for every tool and agent of the thread, and then the next three are NULL too.
    tool text COLLATE "C",
    -- NULL also in a grant from before grants named their agent.
    agent text COLLATE "C",
    definition bytea CHECK (length(definition) = 32),
    reasons text COLLATE "C",
    given_by text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    -- It counts no more. The row stays: the log says that the grant was given.
    revoked boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, id),
    CHECK ((tool IS NULL) = (definition IS NULL) AND (tool IS NULL) = (reasons IS NULL)),
    CHECK (tool IS NOT NULL OR agent IS NULL)
);

CREATE INDEX grants_of_thread ON grants (thread, tool);
CREATE INDEX grants_newest ON grants (tenant, since, id) WHERE NOT revoked;

-- Nobody recorded which agent and which reason these were given for: they lift the tool's own `approval = "ask"` alone.
INSERT INTO grants (tenant, id, thread, tool, definition, reasons, given_by, since, revoked)
SELECT l.tenant, 'grt_before_' || row_number() OVER (ORDER BY l.thread, l.tool), l.thread, l.tool, l.definition, '["tool"]',
    l.given_by, t.created_at, l.taken_back
FROM leave l JOIN threads t ON t.thread = l.thread;

INSERT INTO grants (tenant, id, thread, given_by, since)
SELECT tenant, 'grt_before_thread_' || thread, thread, auto_approved_by, created_at
FROM threads WHERE auto_approved_by IS NOT NULL;

-- The view reads what goes. It comes back with the functions of this version.
DROP VIEW IF EXISTS threads_shown;
DROP TABLE leave;
ALTER TABLE threads DROP COLUMN auto_approved_by;
