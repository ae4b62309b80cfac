-- Nodes, threads, runs, their logs, and what is shown beside the logs. Texts and arguments stand in `commits` alone.
-- Names are compared byte by byte, whatever the language of the database.
--
-- What every commit writes to (`runs`, `commits`, `messages`, `call_ids`) has no foreign key: looking up the same locked row
-- once more for every row that is written is a seventh of what a commit costs. Every function that writes there takes the
-- number of the run or thread from its row, which it has locked or made; so without the row it writes nothing. And a thread
-- goes only with all that is kept of it (`drop_thread`).
--
-- What a row of these tables may be is a function for each of them: the text of a CHECK is read and planned again by every
-- statement that writes to its table, and of `commits` once more for each part. Written out, the checks were a seventh of
-- what a commit costs too. Whoever changes one of these functions has to look at the rows that are there: the database does
-- not.

CREATE FUNCTION run_is_possible(
    status text, holds boolean, seq bigint, epoch bigint, node bigint, ready smallint, ready_at bigint, wake_at bigint,
    started_at bigint, ended_at bigint, promised text, parent bigint, parent_call text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN seq >= 1
        -- An epoch begins with a holder.
        AND epoch >= CASE WHEN node IS NULL THEN 0 ELSE 1 END
        AND ready BETWEEN 0 AND 2
        AND (ready = 0) = (ready_at IS NULL)
        AND (parent IS NULL) = (parent_call IS NULL)
        AND (promised IS NULL OR (started_at IS NULL AND ended_at IS NULL))
        AND CASE
            WHEN status IN ('completed', 'failed', 'interrupted') THEN
                ended_at IS NOT NULL AND NOT holds AND ready = 0 AND wake_at IS NULL AND node IS NULL
            -- Only the run that holds the thread may start. One that nobody has in hand is looked for.
            WHEN status = 'queued' THEN
                ended_at IS NULL AND CASE WHEN holds THEN node IS NOT NULL OR ready <> 0 ELSE ready <> 2 END
            -- Only the run that holds the thread is under way.
            WHEN status IN ('running', 'interrupting') THEN
                ended_at IS NULL AND holds AND ready <> 2 AND (node IS NOT NULL OR ready <> 0)
            WHEN status IN ('waiting_approval', 'waiting_tool') THEN
                ended_at IS NULL AND holds AND ready <> 2
            ELSE false
        END;
END $$;

CREATE FUNCTION commit_is_possible(first_seq bigint, last_seq bigint, checkpoint text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN first_seq >= 1 AND last_seq >= first_seq AND checkpoint IN (
        'user_message', 'assistant_turn', 'tool_results', 'replay_results', 'waiting', 'run_finished'
    );
END $$;

CREATE FUNCTION message_is_possible(seq bigint, role text, place bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN seq >= 1 AND role IN ('user', 'assistant', 'tool', 'note') AND place >= 1;
END $$;

-- Who holds runs. A row that is gone is a lease that is over, for ever: a node that comes back gets another number.
CREATE TABLE nodes (
    node bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- For a person who looks.
    name text NOT NULL,
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CHECK (expires_at >= started_at)
) WITH (fillfactor = 50);

CREATE TABLE threads (
    thread bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    metadata json NOT NULL,
    auto_approved_by text COLLATE "C"
);
CREATE INDEX threads_by_age ON threads (tenant, created_at, id);
-- Behind those that have an `id` further back, here and below: among indexes that promise the same the last one is taken,
-- and in a small table these do.
ALTER TABLE threads ADD UNIQUE (tenant, id);

CREATE TABLE runs (
    run bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    -- A parent may be deleted before its children.
    parent bigint,
    parent_call text COLLATE "C",
    begins_after text COLLATE "C",
    -- The message that joins the thread when the run starts. Nobody else can bring it.
    promised text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    holds boolean NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    -- Rises with every commit and every item, so that whoever judged what was there can tell that it still is.
    change bigint NOT NULL DEFAULT 0,
    -- Who works on it. A run whose node is gone is nobody's, and is looked for.
    node bigint,
    -- From here on what the last worker started and lost may be offered as in doubt.
    doubt_at bigint,
    interrupt_accepted boolean NOT NULL DEFAULT false,
    in_doubt boolean NOT NULL,
    -- 1: woken, or its worker is gone. 2: it may start. 0: nothing to claim it for but `wake_at`. A run that is held
    -- and woken has something in its inbox.
    ready smallint NOT NULL,
    -- In microseconds: the order of arrival.
    ready_at bigint,
    wake_at bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    control bytea NOT NULL,
    CHECK (run_is_possible(
        status, holds, seq, epoch, node, ready, ready_at, wake_at, started_at, ended_at, promised, parent, parent_call
    ))
    -- Room for the next version of a row on its own page: no index changes with most commits.
) WITH (fillfactor = 60);
-- Compact already.
ALTER TABLE runs ALTER COLUMN control SET STORAGE EXTERNAL;
CREATE INDEX runs_by_status ON runs (tenant, status, created_at, id);
-- The same of one agent: a list of few among many must not look at all of them. It changes with the status, as the one
-- above does, and with nothing else: what was a change of no index is one still. An expression, which that one cannot
-- serve: where most runs are of one agent, that one is taken to be as good, and all runs are looked at for an agent that
-- has none.
CREATE INDEX runs_by_agent ON runs (tenant, agent, (status || ''), created_at, id);
-- Shown as interrupting from the moment the interrupt is accepted, whatever the log says.
CREATE INDEX runs_interrupting ON runs (tenant, created_at, id)
    WHERE ended_at IS NULL AND (interrupt_accepted OR status = 'interrupting');
CREATE INDEX runs_by_thread ON runs (thread, created_at, id);
CREATE UNIQUE INDEX runs_one_holder ON runs (thread) WHERE holds;
CREATE INDEX runs_unended ON runs (thread, run) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX runs_promised ON runs (thread, promised) WHERE promised IS NOT NULL;
-- To whom a run has delegated.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
-- What may be claimed.
CREATE INDEX runs_woken ON runs (ready_at, run) WHERE ready = 1 AND node IS NULL;
CREATE INDEX runs_due ON runs (wake_at, run) WHERE wake_at IS NOT NULL AND node IS NULL;
CREATE INDEX runs_startable ON runs (tenant, ready_at, run) WHERE ready = 2 AND node IS NULL;
-- What a node holds, and what of it has something to hear.
CREATE INDEX runs_held ON runs (node, run) WHERE node IS NOT NULL;
CREATE INDEX runs_rung ON runs (node) WHERE ready = 1 AND node IS NOT NULL;
ALTER TABLE runs ADD UNIQUE (tenant, id);

-- One row per commit: far fewer rows than one per event. In parts from the beginning, so that each part stays small
-- enough to be cleaned and indexed by itself.
CREATE TABLE commits (
    tenant text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text COLLATE "C" NOT NULL,
    -- The stored events, one a line.
    body text NOT NULL,
    PRIMARY KEY (run, last_seq),
    CHECK (commit_is_possible(first_seq, last_seq, checkpoint))
) PARTITION BY HASH (run);
CREATE TABLE commits_0 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE commits_1 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE commits_2 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE commits_3 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE commits_4 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE commits_5 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE commits_6 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE commits_7 PARTITION OF commits FOR VALUES WITH (MODULUS 8, REMAINDER 7);

CREATE TABLE inbox (
    -- Given out while the run is locked, so that those of one run grow in the order of arrival.
    ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs (run),
    kind text COLLATE "C" NOT NULL
        CHECK (kind IN ('decision', 'early', 'interrupt', 'child_ended', 'late_answer')),
    -- Of an early decision: what it will answer.
    call text COLLATE "C",
    arguments bytea CHECK (arguments IS NULL OR length(arguments) = 32),
    -- The run ends once it has heard it; of an early decision: once it answers an approval.
    ends_run boolean NOT NULL DEFAULT false,
    item text NOT NULL,
    CHECK ((kind = 'early') = (call IS NOT NULL)),
    CHECK ((kind = 'early') = (arguments IS NOT NULL))
);
CREATE INDEX inbox_by_run ON inbox (run, ticket);
CREATE UNIQUE INDEX inbox_one_early ON inbox (run, call) WHERE kind = 'early';
CREATE INDEX inbox_ending ON inbox (run) WHERE ends_run;

CREATE TABLE suspensions (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs (run),
    -- The event that opened it has what a person needs to see.
    seq bigint NOT NULL CHECK (seq >= 1),
    -- The event that closed it has what was decided.
    closed_seq bigint CHECK (closed_seq > seq),
    call text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN (
        'approval', 'client_tool', 'external', 'question', 'in_doubt', 'child_run'
    )),
    status text COLLATE "C" NOT NULL
        CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'answered')),
    -- The inbox row with the accepted answer. It left the inbox with the commit that closed this, or forgot it.
    answered_by bigint,
    arguments bytea CHECK (arguments IS NULL OR length(arguments) = 32),
    created_at bigint NOT NULL,
    expires_at bigint,
    decided_at bigint,
    decided_by text COLLATE "C",
    reason text,
    note text,
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'pending') = (decided_at IS NULL)),
    CHECK ((status = 'pending') = (decided_by IS NULL)),
    CHECK ((status = 'pending') = (closed_seq IS NULL)),
    CHECK (status = 'pending' OR answered_by IS NULL)
);
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
    tenant text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs (run),
    id text COLLATE "C" NOT NULL,
    decision text NOT NULL,
    PRIMARY KEY (run, id)
);

CREATE TABLE messages (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    seq bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    -- In the order in which they joined the thread, from 1 on.
    place bigint NOT NULL,
    UNIQUE (thread, place),
    CHECK (message_is_possible(seq, role, place))
);
ALTER TABLE messages ADD PRIMARY KEY (thread, id);

CREATE TABLE call_ids (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread, id)
);

CREATE TABLE leave (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL REFERENCES threads (thread),
    tool text COLLATE "C" NOT NULL,
    given_by text COLLATE "C" NOT NULL,
    definition bytea NOT NULL CHECK (length(definition) = 32),
    -- It counts no more. The row stays: the log says that the leave was given.
    taken_back boolean NOT NULL DEFAULT false,
    PRIMARY KEY (thread, tool)
);

CREATE TABLE plugin_state (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL REFERENCES threads (thread),
    -- 0 where it is kept for the whole thread.
    run bigint NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (thread, run, plugin, key)
);

-- Recognises a repeat of a posted message.
CREATE TABLE post_keys (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL REFERENCES threads (thread),
    scope text COLLATE "C" NOT NULL,
    -- Of the same thread, and gone with it.
    run bigint NOT NULL,
    body bytea NOT NULL CHECK (length(body) = 32),
    PRIMARY KEY (thread, scope)
);

-- Answers as they were given, for whoever asks the same once more.
CREATE TABLE remembered (
    tenant text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs (run),
    scope text COLLATE "C" NOT NULL,
    body bytea NOT NULL CHECK (length(body) = 32),
    status integer NOT NULL CHECK (status >= 0),
    answer text NOT NULL,
    PRIMARY KEY (run, scope)
);

-- Frozen agents of the configuration, found by their content: they belong to no tenant.
CREATE TABLE revisions (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    text text NOT NULL
);

-- Those that came with a message: they belong to its thread, and go with it.
CREATE TABLE brought (
    tenant text COLLATE "C" NOT NULL,
    thread bigint NOT NULL REFERENCES threads (thread),
    digest bytea NOT NULL CHECK (length(digest) = 32),
    text text NOT NULL,
    PRIMARY KEY (thread, digest)
);

-- What the tokens of callbacks are made with: the first key that a node drew.
CREATE TABLE callback_key (
    the_only boolean PRIMARY KEY CHECK (the_only),
    key bytea NOT NULL CHECK (length(key) = 32)
);
