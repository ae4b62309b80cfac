-- Threads, runs, their logs, and what is shown beside the logs. Texts and arguments stand in `commits` alone.

-- "hold": tells a store from the files of other programs.
PRAGMA application_id = 0x686f6c64;

CREATE TABLE threads (
    row INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    metadata TEXT NOT NULL CHECK (json_valid(metadata)),
    -- The last message.
    head TEXT,
    auto_approved_by TEXT,
    UNIQUE (tenant, id)
) STRICT;
CREATE INDEX threads_by_age ON threads (tenant, created_at, id);

CREATE TABLE runs (
    -- Never used again: a lease and a child's `parent` name it without a foreign key.
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    agent TEXT NOT NULL,
    parent INTEGER,
    parent_call TEXT,
    begins_after TEXT,
    -- The message that joins the thread when the run starts. Nobody else can bring it.
    promised TEXT,
    status TEXT NOT NULL CHECK (status IN (
        'queued', 'running', 'waiting_approval', 'waiting_tool', 'interrupting',
        'completed', 'failed', 'interrupted'
    )),
    holds INTEGER NOT NULL CHECK (holds IN (0, 1)),
    seq INTEGER NOT NULL CHECK (seq >= 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    interrupt_accepted INTEGER NOT NULL CHECK (interrupt_accepted IN (0, 1)),
    in_doubt INTEGER NOT NULL CHECK (in_doubt IN (0, 1)),
    -- 1: woken, or its worker is gone. 2: it may start. 0: nothing to claim it for but `wake_at`, or its worker
    -- goes on with it.
    ready INTEGER NOT NULL CHECK (ready IN (0, 1, 2)),
    -- In microseconds, and no two are the same: the order of arrival.
    ready_at INTEGER,
    wake_at INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    -- Last, so that the columns before it are read without it.
    control BLOB NOT NULL,
    UNIQUE (tenant, id),
    CHECK ((parent IS NULL) = (parent_call IS NULL)),
    CHECK ((ready = 0) = (ready_at IS NULL)),
    CHECK (promised IS NULL OR (started_at IS NULL AND ended_at IS NULL)),
    CHECK (ready <> 2 OR (status = 'queued' AND holds = 1)),
    CHECK ((status IN ('completed', 'failed', 'interrupted')) = (ended_at IS NOT NULL)),
    CHECK (ended_at IS NULL OR (holds = 0 AND ready = 0 AND wake_at IS NULL)),
    -- Only the run that holds the thread is under way.
    CHECK (holds = 1 OR status IN ('queued', 'completed', 'failed', 'interrupted'))
) STRICT;
CREATE INDEX runs_by_status ON runs (tenant, status, created_at, id);
-- The same of one agent: a list of few among many must not look at all of them.
CREATE INDEX runs_by_agent ON runs (tenant, agent, status, created_at, id);
-- Shown as interrupting from the moment the interrupt is accepted, whatever the log says.
CREATE INDEX runs_interrupting ON runs (tenant, created_at, id)
    WHERE ended_at IS NULL AND (interrupt_accepted = 1 OR status = 'interrupting');
CREATE INDEX runs_by_thread ON runs (thread, created_at, id);
CREATE UNIQUE INDEX runs_one_holder ON runs (thread) WHERE holds = 1;
CREATE INDEX runs_in_line ON runs (thread, row) WHERE holds = 0 AND ended_at IS NULL;
CREATE INDEX runs_woken ON runs (ready_at, row) WHERE ready = 1;
CREATE INDEX runs_interrupted ON runs (ready_at, row) WHERE ready = 1 AND interrupt_accepted = 1;
CREATE INDEX runs_startable ON runs (tenant, ready_at, row) WHERE ready = 2;
CREATE UNIQUE INDEX runs_promised ON runs (thread, promised) WHERE promised IS NOT NULL;
-- Without the runs that a worker goes on with: it looks at their deadlines itself.
CREATE INDEX runs_by_deadline ON runs (wake_at, row)
    WHERE wake_at IS NOT NULL AND (ready <> 0 OR status IN ('queued', 'waiting_approval', 'waiting_tool'));
-- What a process that died was working on.
CREATE INDEX runs_under_way ON runs (row) WHERE ready = 0 AND status IN ('queued', 'running', 'interrupting');

-- One row per commit, at the end of the file: far fewer rows than one per event.
CREATE TABLE commits (
    row INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (row),
    first_seq INTEGER NOT NULL CHECK (first_seq >= 1),
    last_seq INTEGER NOT NULL CHECK (last_seq >= first_seq),
    checkpoint TEXT NOT NULL CHECK (checkpoint IN (
        'user_message', 'assistant_turn', 'tool_results', 'replay_results', 'waiting', 'run_finished'
    )),
    -- The stored events, one a line.
    body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX commits_by_run ON commits (run, last_seq);

CREATE TABLE inbox (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (row),
    kind TEXT NOT NULL CHECK (kind IN ('decision', 'early', 'interrupt', 'child_ended', 'late_answer')),
    -- Of an early decision: what it will answer.
    call TEXT,
    arguments BLOB CHECK (arguments IS NULL OR length(arguments) = 32),
    -- The run ends once it has heard it; of an early decision: once it answers an approval.
    ends_run INTEGER NOT NULL DEFAULT 0 CHECK (ends_run IN (0, 1)),
    item TEXT NOT NULL,
    CHECK ((kind = 'early') = (call IS NOT NULL)),
    CHECK ((kind = 'early') = (arguments IS NOT NULL))
) STRICT;
CREATE INDEX inbox_by_run ON inbox (run, ticket);
CREATE UNIQUE INDEX inbox_one_early ON inbox (run, call) WHERE kind = 'early';
CREATE INDEX inbox_ending ON inbox (run) WHERE ends_run = 1;

CREATE TABLE suspensions (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (row),
    -- The event that opened it has what a person needs to see.
    seq INTEGER NOT NULL CHECK (seq >= 1),
    -- The event that closed it has what was decided.
    closed_seq INTEGER CHECK (closed_seq > seq),
    call TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN (
        'approval', 'client_tool', 'external', 'question', 'in_doubt', 'child_run'
    )),
    status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'answered')),
    -- The inbox row with the accepted answer. It left the inbox with the commit that closed this, or forgot it.
    answered_by INTEGER,
    arguments BLOB CHECK (arguments IS NULL OR length(arguments) = 32),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    decided_at INTEGER,
    decided_by TEXT,
    reason TEXT,
    note TEXT,
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'pending') = (decided_at IS NULL)),
    CHECK ((status = 'pending') = (decided_by IS NULL)),
    CHECK ((status = 'pending') = (closed_seq IS NULL)),
    CHECK (status = 'pending' OR answered_by IS NULL)
) STRICT, WITHOUT ROWID;
-- By what changed them last.
CREATE INDEX suspensions_by_run ON suspensions (run, coalesce(closed_seq, seq));
CREATE UNIQUE INDEX suspensions_one_open ON suspensions (run, call) WHERE status = 'pending';
-- What people have to answer, and all the rest: each in one of the two.
CREATE INDEX suspensions_pending ON suspensions (tenant, created_at, id)
    WHERE status = 'pending' AND answered_by IS NULL AND kind IN ('approval', 'question', 'in_doubt');
CREATE INDEX suspensions_by_age ON suspensions (tenant, status, created_at, id)
    WHERE (status <> 'pending' OR answered_by IS NOT NULL) AND kind IN ('approval', 'question', 'in_doubt');

-- Answers repeats for ever.
CREATE TABLE decisions (
    tenant TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (row),
    id TEXT NOT NULL,
    decision TEXT NOT NULL,
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    id TEXT NOT NULL,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'note')),
    -- In the order in which they joined the thread, from 1 on.
    place INTEGER NOT NULL CHECK (place >= 1),
    PRIMARY KEY (thread, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX messages_in_order ON messages (thread, place);

CREATE TABLE call_ids (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    id TEXT NOT NULL,
    PRIMARY KEY (thread, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE leave (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    tool TEXT NOT NULL,
    given_by TEXT NOT NULL,
    definition BLOB NOT NULL CHECK (length(definition) = 32),
    -- It counts no more. The row stays: the log says that the leave was given.
    taken_back INTEGER NOT NULL DEFAULT 0 CHECK (taken_back IN (0, 1)),
    PRIMARY KEY (thread, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE plugin_state (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    -- 0 where it is kept for the whole thread.
    run INTEGER NOT NULL,
    plugin TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (thread, run, plugin, key)
) STRICT, WITHOUT ROWID;

-- Recognises a repeat of a posted message.
CREATE TABLE post_keys (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    scope TEXT NOT NULL,
    -- Of the same thread, and gone with it.
    run INTEGER NOT NULL,
    body BLOB NOT NULL CHECK (length(body) = 32),
    -- Of the others: no log says what they are.
    seal BLOB NOT NULL CHECK (length(seal) = 32),
    PRIMARY KEY (thread, scope)
) STRICT, WITHOUT ROWID;

-- Answers as they were given, for whoever asks the same once more.
CREATE TABLE remembered (
    tenant TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (row),
    scope TEXT NOT NULL,
    body BLOB NOT NULL CHECK (length(body) = 32),
    status INTEGER NOT NULL CHECK (status >= 0),
    -- Of the others: no log says what they are.
    seal BLOB NOT NULL CHECK (length(seal) = 32),
    answer TEXT NOT NULL,
    PRIMARY KEY (run, scope)
) STRICT, WITHOUT ROWID;

-- Frozen agents of the configuration, found by their content: they belong to no tenant.
CREATE TABLE revisions (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Those that came with a message: they belong to its thread, and go with it.
CREATE TABLE brought (
    tenant TEXT NOT NULL,
    thread INTEGER NOT NULL REFERENCES threads (row),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    text TEXT NOT NULL,
    PRIMARY KEY (thread, digest)
) STRICT, WITHOUT ROWID;

-- What the tokens of callbacks are made with: the first key that a process drew.
CREATE TABLE callback_key (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;

-- How often the file was opened: the epochs of one process lie above those of all before it.
CREATE TABLE openings (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    count INTEGER NOT NULL CHECK (count >= 0)
) STRICT;
INSERT INTO openings (only, count) VALUES (1, 0);
