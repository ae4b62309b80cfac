-- The commits of runs, each a function, so that a commit takes one round trip. A function that refuses a commit writes
-- nothing and returns the reason as a word. Impossible input raises an exception, which rolls back the whole commit.
--
-- Every function first locks and then reads, in separate statements: a statement that has waited for a lock still uses
-- what it had read before. The module's documentation has the lock order.
--
-- A function that reads a table is written in PL/pgSQL, which keeps its plans for the whole session. A function in SQL
-- is planned again with each call, and planning takes longer than the function itself.
--
-- A lookup for each of several rows is a `SELECT true … LIMIT 1`, which is null if there is no row, and not an EXISTS:
-- if the plan was made while the table was small, PostgreSQL answers an EXISTS by first reading the whole table.

-- Only tests pass `at`; otherwise the database's clock is used.
CREATE FUNCTION now_ms(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

CREATE FUNCTION now_us(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at * 1000, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

CREATE FUNCTION impossible(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'HPI00', MESSAGE = why;
END $$;

-- Whether a node may write: 'held', 'lapsed' while it has to renew its lease first, 'fenced' once the lease is over.
CREATE FUNCTION lease_state(p_node bigint, p_at bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    over_at bigint;
BEGIN
    SELECT expires_at INTO over_at FROM nodes WHERE node = p_node;
    RETURN CASE over_at > now_ms(p_at) WHEN true THEN 'held' WHEN false THEN 'lapsed' ELSE 'fenced' END;
END $$;

-- Checks the lease again after waiting for locks: if it has expired meanwhile, the exception rolls back everything that
-- the transaction has written.
CREATE FUNCTION assert_lease_held(p_node bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF lease_state(p_node, p_at) <> 'held' THEN
        RAISE EXCEPTION 'the lease of this node has run out' USING ERRCODE = 'HPL00';
    END IF;
END $$;

-- The value of `ready` for a run that no node holds and whose inbox is empty.
CREATE FUNCTION ready_as(status text, holds boolean) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE
        WHEN status IN ('running', 'interrupting') THEN 1
        WHEN status = 'queued' AND holds THEN 2
        ELSE 0
    END)::smallint
$$;

-- Stores the id of a decision permanently, if it has one. If the id was used before, the whole commit is rolled back.
CREATE FUNCTION record_decision(p_tenant text, p_run bigint, p_item jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_item ->> 'decision' IS NOT NULL THEN
        INSERT INTO decisions (tenant, run, id, decision)
        VALUES (p_tenant, p_run, p_item ->> 'decision_id', p_item ->> 'decision')
        ON CONFLICT (run, id) DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the id of a decision was used before' USING ERRCODE = 'HPB00';
        END IF;
    END IF;
END $$;

-- Adds an item to the inbox of a locked run, and wakes the run.
CREATE FUNCTION insert_inbox_item(p_tenant text, p_run bigint, p_item jsonb, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    the_ticket bigint;
BEGIN
    INSERT INTO inbox (tenant, run, kind, call, arguments, item)
    VALUES (
        p_tenant, p_run, p_item ->> 'kind', p_item ->> 'early_call', decode(p_item ->> 'arguments', 'hex'),
        p_item ->> 'text'
    ) RETURNING ticket INTO the_ticket;
    UPDATE runs SET
        ready_at = CASE WHEN ready = 1 THEN ready_at ELSE now_us(p_at) END, ready = 1, version = version + 1,
        interrupt_accepted = interrupt_accepted OR p_item ->> 'kind' = 'interrupt'
    WHERE run = p_run;
    PERFORM record_decision(p_tenant, p_run, p_item);
    RETURN the_ticket;
END $$;

-- Takes the item if the run has not changed since the caller judged it. Otherwise the caller has to judge it again.
CREATE FUNCTION submit(
    p_run bigint, p_version bigint, p_item jsonb, p_at bigint, OUT outcome text, OUT held_by bigint
) LANGUAGE plpgsql AS $$
DECLARE
    found_run record;
    the_ticket bigint;
BEGIN
    SELECT tenant, version, node INTO found_run FROM runs WHERE run = p_run FOR NO KEY UPDATE;
    IF NOT FOUND OR found_run.version <> p_version THEN
        outcome := 'again';
        RETURN;
    END IF;
    the_ticket := insert_inbox_item(found_run.tenant, p_run, p_item, p_at);
    IF p_item ->> 'kind' IN ('decision', 'late_answer') THEN
        UPDATE suspensions SET answered_by = the_ticket
        WHERE run = p_run AND call = p_item ->> 'call' AND status = 'pending';
    END IF;
    outcome := 'taken';
    held_by := found_run.node;
END $$;

-- Writes messages of one or several runs, each on its own locked thread. The arrays of tenants, threads and runs have
-- the same order; a message refers to them by position, and is the `nth` message of its run in this commit. A message
-- that is still to join a thread counts as being in it: that of a run that has not started, and the one that each call
-- gets.
CREATE FUNCTION write_messages(
    p_tenants text[], p_threads bigint[], p_runs bigint[], p_places integer[], p_nths integer[], p_ids text[],
    p_seqs bigint[], p_roles text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
    taken text;
BEGIN
    INSERT INTO messages (tenant, thread, id, run, seq, role, place)
    SELECT p_tenants[m.place], p_threads[m.place], m.id, p_runs[m.place], p_seqs[m.i], m.role,
        coalesce((SELECT max(q.place) FROM messages q WHERE q.thread = p_threads[m.place]), 0) + p_nths[m.i]
    FROM (
        SELECT u.id, u.i, p_places[u.i] AS place, p_roles[u.i] AS role FROM unnest(p_ids) WITH ORDINALITY AS u (id, i)
    ) AS m
    WHERE CASE
        WHEN (SELECT true FROM runs q WHERE q.thread = p_threads[m.place] AND q.promised = m.id LIMIT 1) THEN false
        WHEN m.role = 'tool' OR NOT starts_with(m.id, 'msg_') THEN true
        ELSE (
            SELECT true FROM call_ids c WHERE c.thread = p_threads[m.place] AND c.id = substr(m.id, 5) LIMIT 1
        ) IS NULL
    END;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality(p_ids) THEN
        SELECT m.id INTO taken FROM unnest(p_places, p_ids, p_seqs) AS m (place, id, seq)
        WHERE (
            SELECT true FROM messages w WHERE w.thread = p_threads[m.place] AND w.id = m.id
                AND w.run = p_runs[m.place] AND w.seq = m.seq LIMIT 1
        ) IS NULL;
        PERFORM impossible(format('message %s is already in use', taken));
    END IF;
END $$;

-- Writes calls of one or several runs, in the same way.
CREATE FUNCTION write_calls(
    p_tenants text[], p_threads bigint[], p_runs bigint[], p_places integer[], p_ids text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
    taken text;
BEGIN
    INSERT INTO call_ids (tenant, thread, id)
    SELECT p_tenants[c.place], p_threads[c.place], c.id FROM unnest(p_places, p_ids) AS c (place, id)
    WHERE CASE
        WHEN (
            SELECT true FROM messages m WHERE m.thread = p_threads[c.place] AND m.id = 'msg_' || c.id
                AND NOT (m.run = p_runs[c.place] AND m.role = 'tool') LIMIT 1
        ) THEN false
        ELSE (
            SELECT true FROM runs q WHERE q.thread = p_threads[c.place] AND q.promised = 'msg_' || c.id LIMIT 1
        ) IS NULL
    END;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality(p_ids) THEN
        SELECT c.id INTO taken FROM unnest(p_places, p_ids) AS c (place, id)
        WHERE (
            SELECT true FROM messages m WHERE m.thread = p_threads[c.place] AND m.id = 'msg_' || c.id
                AND NOT (m.run = p_runs[c.place] AND m.role = 'tool') LIMIT 1
        ) OR (SELECT true FROM runs q WHERE q.thread = p_threads[c.place] AND q.promised = 'msg_' || c.id LIMIT 1);
        PERFORM impossible(format('the message of call %s is already in use', taken));
    END IF;
END $$;

-- Writes messages, calls, grants and plugin state.
CREATE FUNCTION write_thread(p_tenant text, p_thread bigint, p_run bigint, p_entry jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    one jsonb;
BEGIN
    IF p_entry ? 'messages' THEN
        PERFORM write_messages(
            ARRAY[p_tenant], ARRAY[p_thread], ARRAY[p_run], array_agg(1), array_agg(m.nth::integer), array_agg(m.id),
            array_agg(m.seq), array_agg(m.role)
        )
        FROM ROWS FROM (jsonb_to_recordset(p_entry -> 'messages') AS (id text, seq bigint, role text)) WITH ORDINALITY
            AS m (id, seq, role, nth);
    END IF;
    IF p_entry ? 'calls' THEN
        PERFORM write_calls(ARRAY[p_tenant], ARRAY[p_thread], ARRAY[p_run], array_agg(1), array_agg(c.id))
        FROM jsonb_array_elements_text(p_entry -> 'calls') AS c (id);
    END IF;
    IF p_entry ? 'grants' THEN
        INSERT INTO grants (tenant, id, thread, tool, agent, definition, reasons, given_by, since)
        SELECT p_tenant, g.id, p_thread, g.tool, g.agent, decode(g.definition, 'hex'), g.reasons, g.given_by, g.since
        FROM jsonb_to_recordset(p_entry -> 'grants') AS g (
            id text, tool text, agent text, definition text, reasons text, given_by text, since bigint
        );
    END IF;
    -- Row by row: a commit may set the same key twice, and the last value counts.
    IF p_entry ? 'state' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'state') LOOP
            INSERT INTO plugin_state (tenant, thread, run, plugin, key, value)
            SELECT p_tenant, p_thread, CASE WHEN s.of_thread THEN 0 ELSE p_run END, s.plugin, s.key, s.value
            FROM jsonb_to_record(one) AS s (of_thread boolean, plugin text, key text, value text)
            ON CONFLICT (thread, run, plugin, key) DO UPDATE SET value = excluded.value;
        END LOOP;
    END IF;
END $$;

-- In the order of the log: a call may be held, released and held again in one commit.
CREATE FUNCTION write_suspensions(p_tenant text, p_run bigint, p_entry jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    IF p_entry ? 'suspensions' THEN
        FOR one IN SELECT * FROM jsonb_to_recordset(p_entry -> 'suspensions') AS s (
            id text, opens boolean, seq bigint, call text, kind text, arguments text, at bigint, expires_at bigint,
            status text, decided_by text, reason text, note text
        ) LOOP
            IF one.opens THEN
                INSERT INTO suspensions (
                    tenant, id, run, seq, call, kind, status, answered_by, arguments, created_at, expires_at
                ) VALUES (
                    p_tenant, one.id, p_run, one.seq, one.call, one.kind, 'pending',
                    -- An early decision answers the approval that it is for.
                    (SELECT ticket FROM inbox WHERE one.kind = 'approval' AND run = p_run AND kind = 'early'
                        AND call = one.call AND arguments = decode(one.arguments, 'hex')),
                    decode(one.arguments, 'hex'), one.at, one.expires_at
                );
            ELSE
                UPDATE suspensions SET
                    status = one.status, answered_by = NULL, decided_at = one.at, decided_by = one.decided_by,
                    reason = one.reason, note = one.note, closed_seq = one.seq
                WHERE tenant = p_tenant AND id = one.id AND run = p_run AND status = 'pending';
                IF NOT FOUND THEN
                    PERFORM impossible(format('suspension %s is not open', one.id));
                END IF;
            END IF;
        END LOOP;
    END IF;
    IF p_entry ? 'voided' THEN
        FOR one IN SELECT * FROM jsonb_to_recordset(p_entry -> 'voided')
            AS v (id text, seq bigint, at bigint, status text, decided_by text, reason text, note text)
        LOOP
            UPDATE suspensions SET
                status = one.status, decided_at = one.at, decided_by = one.decided_by, reason = one.reason, note = one.note,
                closed_seq = one.seq
            WHERE tenant = p_tenant AND id = one.id AND run = p_run AND status <> 'pending';
            IF NOT FOUND THEN
                PERFORM impossible(format('suspension %s was not given before it was void', one.id));
            END IF;
        END LOOP;
    END IF;
    -- An inbox row that was processed without closing the suspension is no longer its answer.
    IF p_entry ? 'consumed' THEN
        UPDATE suspensions SET answered_by = NULL
        WHERE run = p_run AND status = 'pending'
            AND answered_by IN (SELECT c::bigint FROM jsonb_array_elements_text(p_entry -> 'consumed') AS c);
    END IF;
END $$;

-- Creates child runs, each on a new thread, which it holds.
CREATE FUNCTION create_child_runs(p_tenant text, p_parent bigint, p_born jsonb, p_at bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    one record;
    the_thread bigint;
    the_run bigint;
    ids text[] := '{}';
BEGIN
    FOR one IN SELECT * FROM jsonb_to_recordset(p_born) AS b (
        thread text, id text, agent text, parent_call text, promised text, status text, in_doubt boolean,
        wake_at bigint, first_seq bigint, last_seq bigint, created_at bigint, control text, checkpoint text, body text,
        hash text
    ) LOOP
        INSERT INTO threads (tenant, id, created_at, metadata) VALUES (p_tenant, one.thread, now_ms(p_at), 'null')
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread INTO the_thread;
        IF NOT FOUND THEN
            PERFORM impossible(format('thread %s exists already', one.thread));
        END IF;
        INSERT INTO runs (
            tenant, id, thread, agent, parent, parent_call, promised, status, holds, seq, epoch, in_doubt, ready,
            ready_at, wake_at, created_at, control, chain_head, chain_from
        ) VALUES (
            p_tenant, one.id, the_thread, one.agent, CASE WHEN one.parent_call IS NOT NULL THEN p_parent END,
            one.parent_call, one.promised, one.status, true, one.last_seq, 0, one.in_doubt, 2, now_us(p_at), one.wake_at,
            one.created_at, decode(one.control, 'hex'), decode(one.hash, 'hex'), one.first_seq
        ) RETURNING run INTO the_run;
        INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
        VALUES (
            p_tenant, the_run, one.first_seq, one.last_seq, one.checkpoint, one.body, decode(one.hash, 'hex')
        );
        ids := ids || one.id;
    END LOOP;
    RETURN ids;
END $$;

-- Writes everything of a commit except its run and its log: rows of its thread, its suspensions, and items for other
-- runs, which are already locked. Returns the runs that this wakes, and the nodes that hold them.
CREATE FUNCTION write_other_rows(
    p_tenant text, p_thread bigint, p_run bigint, p_entry jsonb, p_at bigint,
    OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    one jsonb;
    target record;
BEGIN
    woken := '{}';
    rung_runs := '{}';
    rung_nodes := '{}';
    IF p_entry ?| '{messages,calls,grants,state}' THEN
        PERFORM write_thread(p_tenant, p_thread, p_run, p_entry);
    END IF;
    IF p_entry ?| '{suspensions,voided,consumed}' THEN
        PERFORM write_suspensions(p_tenant, p_run, p_entry);
    END IF;
    IF p_entry ? 'audit' THEN
        PERFORM write_audit(p_tenant, p_entry);
    END IF;
    IF p_entry ? 'accepted' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'accepted') LOOP
            PERFORM record_decision(p_tenant, p_run, one);
        END LOOP;
    END IF;
    IF p_entry ? 'born' THEN
        woken := woken || create_child_runs(p_tenant, p_run, p_entry -> 'born', p_at);
    END IF;
    IF p_entry ? 'deliver' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'deliver') LOOP
            SELECT id, run, node, ended_at, interrupt_accepted INTO target FROM runs
            WHERE tenant = p_tenant AND id = one ->> 'to';
            -- There is no such run, it has ended, or it would receive a second interrupt.
            CONTINUE WHEN NOT FOUND OR target.ended_at IS NOT NULL
                OR (target.interrupt_accepted AND one ->> 'kind' = 'interrupt');
            PERFORM insert_inbox_item(p_tenant, target.run, one, p_at);
            IF target.id <> ALL (woken) THEN
                woken := woken || target.id;
            END IF;
            IF target.node IS NOT NULL THEN
                rung_runs := rung_runs || target.run;
                rung_nodes := rung_nodes || target.node;
            END IF;
        END LOOP;
    END IF;
END $$;

-- The hash of a commit. In the first commit of a chain the anchor takes the place of the previous hash.
CREATE FUNCTION link(p_previous bytea, p_anchor bytea, p_content bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(coalesce(p_previous, p_anchor) || p_content)
$$;

-- The end of a run's chain: its head, and the last commit with the hash of the commit before it.
CREATE FUNCTION chain_end(
    p_run bigint, OUT chain_from bigint, OUT chain_head bytea, OUT first_seq bigint, OUT last_seq bigint,
    OUT checkpoint text, OUT body text, OUT hash bytea, OUT hash_before bytea
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT r.chain_from, r.chain_head INTO chain_from, chain_head FROM runs r WHERE r.run = p_run;
    SELECT c.first_seq, c.last_seq, c.checkpoint, c.body, c.hash INTO first_seq, last_seq, checkpoint, body, hash
    FROM commits c WHERE c.run = p_run ORDER BY c.last_seq DESC LIMIT 1;
    SELECT b.hash INTO hash_before FROM commits b WHERE b.run = p_run AND b.last_seq = chain_end.first_seq - 1;
END $$;

-- One commit of a run. Returns 'behind' if an item was accepted that its worker has not seen. `p_anchor` and `p_content`
-- are what the commit's hash is computed from, besides the run's head.
CREATE FUNCTION append(
    p_run bigint, p_node bigint, p_epoch bigint, p_expected bigint, p_version bigint, p_entry jsonb, p_control bytea,
    p_body text, p_anchor bytea, p_content bytea, p_at bigint,
    OUT outcome text, OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    ends boolean := p_entry ->> 'ended_at' IS NOT NULL;
    entry record;
    before record;
    the_thread bigint;
    the_next bigint;
    next_run record;
    others bigint[];
    gone bigint;
    the_hash bytea;
BEGIN
    SELECT * INTO entry FROM jsonb_to_record(p_entry) AS e (
        tenant text, id text, of_run text, of_thread text, seq bigint, status text, wake_at bigint, in_doubt boolean,
        started_at bigint, ended_at bigint, interrupts boolean, checkpoint text, consumed bigint[]
    );
    SELECT thread INTO the_thread FROM runs WHERE run = p_run;
    IF ends OR p_entry ?| '{messages,calls,grants,state}' THEN
        PERFORM 1 FROM threads WHERE thread = the_thread FOR NO KEY UPDATE;
    END IF;
    IF ends THEN
        -- Same rule as `promote`: the first queued run that is not interrupted, otherwise the first. The queue changes
        -- only while the thread is locked.
        SELECT run INTO the_next FROM runs
        WHERE thread = the_thread AND ended_at IS NULL AND NOT holds AND run <> p_run
        ORDER BY interrupt_accepted, run LIMIT 1;
    END IF;
    IF the_next IS NOT NULL OR p_entry ? 'deliver' THEN
        SELECT array_agg(run) INTO others FROM runs
        WHERE tenant = entry.tenant AND id IN (
            SELECT d ->> 'to' FROM jsonb_array_elements(coalesce(p_entry -> 'deliver', '[]')) AS d
        );
        PERFORM 1 FROM runs WHERE run = ANY (others || p_run || the_next) ORDER BY run FOR NO KEY UPDATE;
    END IF;
    SELECT r.tenant, r.id, r.seq, r.epoch, r.node, r.holds, r.version, r.chain_head, t.id AS thread INTO before
    FROM runs r JOIN threads t ON t.thread = r.thread WHERE r.run = p_run FOR NO KEY UPDATE OF r;
    IF NOT FOUND OR before.tenant <> entry.tenant OR before.id <> entry.id OR before.seq <> p_expected
        OR before.epoch <> p_epoch OR before.node IS DISTINCT FROM p_node THEN
        outcome := 'fenced';
        RETURN;
    END IF;
    outcome := lease_state(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    IF before.version <> p_version THEN
        outcome := 'behind';
        RETURN;
    END IF;
    IF before.id <> entry.of_run OR before.thread <> entry.of_thread THEN
        PERFORM impossible(format('the control is of %s on %s', entry.of_run, entry.of_thread));
    END IF;
    IF p_entry ? 'consumed' THEN
        DELETE FROM inbox WHERE run = p_run AND ticket = ANY (entry.consumed);
        GET DIAGNOSTICS gone = ROW_COUNT;
        IF gone <> cardinality(entry.consumed) THEN
            PERFORM impossible('the inbox has not all the rows that are consumed');
        END IF;
    END IF;
    IF ends THEN
        DELETE FROM inbox WHERE run = p_run;
    END IF;
    IF p_body IS NOT NULL THEN
        the_hash := link(before.chain_head, p_anchor, p_content);
    END IF;
    UPDATE runs SET
        seq = entry.seq, version = version + 1, status = entry.status, holds = holds AND NOT ends,
        node = CASE WHEN NOT ends THEN p_node END, doubt_at = NULL, wake_at = entry.wake_at,
        in_doubt = entry.in_doubt, interrupt_accepted = interrupt_accepted OR entry.interrupts,
        started_at = coalesce(started_at, entry.started_at), ended_at = entry.ended_at, control = p_control,
        promised = CASE WHEN started_at IS NULL AND entry.started_at IS NULL AND NOT ends THEN promised END,
        ready = i.ready, ready_at = CASE WHEN i.ready = 1 THEN coalesce(ready_at, now_us(p_at)) END,
        chain_head = coalesce(the_hash, chain_head),
        chain_from = coalesce(chain_from, CASE WHEN the_hash IS NOT NULL THEN p_expected + 1 END)
    -- The node that commits continues the run; what waits in its inbox is for the node that holds it.
    FROM (SELECT CASE WHEN EXISTS (SELECT 1 FROM inbox WHERE run = p_run) THEN 1 ELSE 0 END AS ready) AS i
    WHERE run = p_run;
    IF p_body IS NOT NULL THEN
        INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
        VALUES (before.tenant, p_run, p_expected + 1, entry.seq, entry.checkpoint, p_body, the_hash);
    END IF;
    SELECT b.woken, b.rung_runs, b.rung_nodes INTO woken, rung_runs, rung_nodes
    FROM write_other_rows(before.tenant, the_thread, p_run, p_entry, p_at) AS b;
    IF before.holds AND the_next IS NOT NULL THEN
        UPDATE runs SET
            holds = true, ready_at = CASE WHEN ready = 0 THEN now_us(p_at) ELSE ready_at END,
            ready = CASE WHEN ready = 0 THEN 2 ELSE ready END
        WHERE run = the_next RETURNING id, node INTO next_run;
        woken := array_prepend(next_run.id, woken);
        IF next_run.node IS NOT NULL THEN
            rung_runs := rung_runs || the_next;
            rung_nodes := rung_nodes || next_run.node;
        END IF;
    END IF;
END $$;

-- How a run is admitted to a locked thread, by the same rule as `admit`: 'hold', 'enqueue' or 'take_over'. With any
-- other outcome, which is the reason, nothing is written. `front` is the thread's holder or else its first queued run.
CREATE FUNCTION admit_run(p_thread bigint, p_asked jsonb, OUT outcome text, OUT front text) LANGUAGE plpgsql AS $$
DECLARE
    shown record;
    wish text;
BEGIN
    -- Locks the front run, so that it neither starts nor ends meanwhile. If all runs may be interrupted, all are
    -- locked, in the order of their numbers.
    IF 'interrupt' IN (p_asked ->> 'executes', p_asked ->> 'waits') THEN
        PERFORM 1 FROM runs WHERE thread = p_thread AND ended_at IS NULL ORDER BY run FOR NO KEY UPDATE;
    ELSE
        PERFORM 1 FROM runs WHERE run = (
            SELECT f.run FROM runs f WHERE f.thread = p_thread AND f.ended_at IS NULL ORDER BY f.holds DESC, f.run LIMIT 1
        ) FOR NO KEY UPDATE;
    END IF;
    SELECT t.head, t.front, t.front_status, t.descendant_statuses, t.front_in_doubt, t.queued INTO shown
    FROM threads_shown t WHERE t.thread = p_thread;
    front := shown.front;
    wish := CASE
        WHEN p_asked -> 'waits_in' ? shown.front_status AND p_asked -> 'waits_in' ?& shown.descendant_statuses
            THEN p_asked ->> 'waits'
        ELSE p_asked ->> 'executes'
    END;
    outcome := CASE
        WHEN (p_asked ->> 'starts')::boolean
            AND (shown.front IS NOT NULL OR shown.head IS DISTINCT FROM p_asked ->> 'head') THEN 'stale'
        WHEN shown.front IS NULL THEN 'hold'
        WHEN wish = 'reject' THEN 'active_run'
        WHEN wish = 'interrupt' AND shown.front_in_doubt THEN 'in_doubt'
        WHEN wish = 'interrupt' AND shown.queued >= (p_asked ->> 'line_max')::bigint THEN 'line_full'
        WHEN wish = 'interrupt' THEN 'take_over'
        WHEN shown.queued >= (p_asked ->> 'queue_max')::bigint THEN 'queue_full'
        ELSE 'enqueue'
    END;
END $$;

-- A superseding run interrupts all runs of its thread that have not ended and are not interrupted. They are locked.
CREATE FUNCTION supersede(
    p_tenant text, p_thread bigint, p_by bigint, p_item jsonb, p_at bigint,
    OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    woken := '{}';
    rung_runs := '{}';
    rung_nodes := '{}';
    FOR one IN
        SELECT id, run, node FROM runs
        WHERE thread = p_thread AND ended_at IS NULL AND NOT interrupt_accepted AND run <> p_by
        ORDER BY holds DESC, run
    LOOP
        PERFORM insert_inbox_item(p_tenant, one.run, p_item, p_at);
        woken := woken || one.id;
        IF one.node IS NOT NULL THEN
            rung_runs := rung_runs || one.run;
            rung_nodes := rung_nodes || one.node;
        END IF;
    END LOOP;
END $$;

-- Creates a run. If `p_node` is given, that node holds it.
CREATE FUNCTION create_run(
    p_tenant text, p_thread text, p_asked jsonb, p_entry jsonb, p_control bytea, p_body text, p_hash bytea,
    p_node bigint, p_at bigint,
    OUT outcome text, OUT created bigint, OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[],
    OUT front text
) LANGUAGE plpgsql AS $$
DECLARE
    entry record;
    the_thread bigint;
    the_parent bigint;
    the_ready smallint;
    holds boolean;
    superseded record;
BEGIN
    IF p_node IS NOT NULL THEN
        outcome := lease_state(p_node, p_at);
        IF outcome <> 'held' THEN
            RETURN;
        END IF;
    END IF;
    IF p_asked ->> 'thread' IS NULL THEN
        INSERT INTO threads (tenant, id, created_at, metadata) VALUES (p_tenant, p_thread, now_ms(p_at), 'null')
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread INTO the_thread;
        outcome := CASE WHEN the_thread IS NULL THEN 'stale' ELSE 'hold' END;
    ELSE
        SELECT thread INTO the_thread FROM threads WHERE tenant = p_tenant AND id = p_thread FOR NO KEY UPDATE;
        outcome := CASE
            WHEN the_thread IS NULL THEN 'gone' WHEN the_thread <> (p_asked ->> 'thread')::bigint THEN 'stale' ELSE 'hold'
        END;
    END IF;
    -- A new thread is free and has no keys, so no later refusal can leave it without its run.
    IF outcome <> 'hold' THEN
        RETURN;
    END IF;
    IF p_node IS NOT NULL THEN
        PERFORM assert_lease_held(p_node, p_at);
    END IF;
    IF p_entry ? 'key_scope' AND EXISTS (
        SELECT 1 FROM post_keys WHERE thread = the_thread AND scope = p_entry ->> 'key_scope'
    ) THEN
        outcome := 'stale';
        RETURN;
    END IF;
    SELECT a.outcome, a.front INTO outcome, front FROM admit_run(the_thread, p_asked) AS a;
    IF outcome NOT IN ('hold', 'enqueue', 'take_over') THEN
        RETURN;
    END IF;
    SELECT * INTO entry FROM jsonb_to_record(p_entry) AS e (
        of_run text, agent text, parent text, parent_call text, begins_after text, user_message text,
        seq bigint, status text, wake_at bigint, in_doubt boolean, started_at bigint, ended_at bigint,
        interrupts boolean, created_at bigint, checkpoint text
    );
    IF entry.user_message IS NOT NULL AND (
        EXISTS (SELECT 1 FROM messages WHERE thread = the_thread AND id = entry.user_message)
        OR EXISTS (SELECT 1 FROM runs WHERE thread = the_thread AND promised = entry.user_message)
        OR (starts_with(entry.user_message, 'msg_')
            AND EXISTS (SELECT 1 FROM call_ids WHERE thread = the_thread AND id = substr(entry.user_message, 5)))
    ) THEN
        PERFORM impossible(format('the thread has a message %s already', entry.user_message));
    END IF;
    IF entry.parent IS NOT NULL THEN
        SELECT run INTO the_parent FROM runs WHERE tenant = p_tenant AND id = entry.parent;
    END IF;
    holds := outcome = 'hold' AND entry.ended_at IS NULL;
    the_ready := CASE WHEN p_node IS NULL THEN ready_as(entry.status, holds) ELSE 0 END;
    INSERT INTO runs (
        tenant, id, thread, agent, parent, parent_call, begins_after, promised, status, holds, seq, epoch, version,
        node, interrupt_accepted, in_doubt, ready, ready_at, wake_at, created_at, started_at, ended_at, control,
        chain_head, chain_from
    ) VALUES (
        p_tenant, entry.of_run, the_thread, entry.agent, the_parent,
        CASE WHEN the_parent IS NOT NULL THEN entry.parent_call END, entry.begins_after,
        CASE WHEN entry.status = 'queued' THEN entry.user_message END, entry.status, holds, entry.seq,
        CASE WHEN p_node IS NULL THEN 0 ELSE 1 END, 1, p_node, entry.interrupts, entry.in_doubt, the_ready,
        CASE WHEN the_ready <> 0 THEN now_us(p_at) END, entry.wake_at, entry.created_at, entry.started_at,
        entry.ended_at, p_control, p_hash, 1
    ) RETURNING run INTO created;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
    VALUES (p_tenant, created, 1, entry.seq, entry.checkpoint, p_body, p_hash);
    IF p_entry ? 'key_scope' THEN
        INSERT INTO post_keys (tenant, thread, scope, run, body)
        VALUES (p_tenant, the_thread, p_entry ->> 'key_scope', created, decode(p_entry ->> 'key_body', 'hex'));
    END IF;
    IF p_entry ? 'brought_digest' THEN
        INSERT INTO brought (tenant, thread, digest, text)
        VALUES (p_tenant, the_thread, decode(p_entry ->> 'brought_digest', 'hex'), p_entry ->> 'brought_text')
        ON CONFLICT DO NOTHING;
    END IF;
    SELECT b.woken, b.rung_runs, b.rung_nodes INTO woken, rung_runs, rung_nodes
    FROM write_other_rows(p_tenant, the_thread, created, p_entry, p_at) AS b;
    IF outcome = 'take_over' THEN
        SELECT * INTO superseded FROM supersede(p_tenant, the_thread, created, p_entry -> 'supersedes', p_at);
        woken := woken || superseded.woken;
        rung_runs := rung_runs || superseded.rung_runs;
        rung_nodes := rung_nodes || superseded.rung_nodes;
    END IF;
END $$;

-- Keeps the first answer under a scope, and returns the one that is kept. Returns no row if there is no such run. The
-- thread is locked so that it is not deleted meanwhile; commits to it do not wait for this lock.
CREATE FUNCTION store_response(
    p_tenant text, p_run text, p_scope text, p_body bytea, p_status integer, p_answer text, p_most bigint
) RETURNS TABLE (kept_body bytea, kept_status integer, kept_answer text) LANGUAGE plpgsql AS $$
DECLARE
    the_run bigint;
BEGIN
    PERFORM 1 FROM runs r JOIN threads t ON t.thread = r.thread
    WHERE r.tenant = p_tenant AND r.id = p_run FOR KEY SHARE OF t;
    SELECT r.run INTO the_run FROM runs r WHERE r.tenant = p_tenant AND r.id = p_run;
    IF the_run IS NULL THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM remembered a WHERE a.run = the_run LIMIT 1 OFFSET p_most - 1) THEN
        INSERT INTO remembered (tenant, run, scope, body, status, answer)
        VALUES (p_tenant, the_run, p_scope, p_body, p_status, p_answer) ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT a.body, a.status, a.answer FROM remembered a WHERE a.run = the_run AND a.scope = p_scope;
    -- No answer is stored under this scope, and the run has its maximum number of answers.
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::bytea, NULL::integer, NULL::text;
    END IF;
END $$;

-- Gives a grant for every tool of a thread and replaces an earlier one. Without an id, revokes every grant of the
-- thread. Returns whether the thread exists.
CREATE FUNCTION set_auto_approve(
    p_tenant text, p_thread text, p_id text, p_by text, p_actor jsonb, p_at bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    the_thread bigint;
    ended record;
BEGIN
    -- A commit that gives a grant locks the thread too, so its grant is visible here.
    SELECT thread INTO the_thread FROM threads WHERE tenant = p_tenant AND id = p_thread FOR NO KEY UPDATE;
    IF the_thread IS NULL THEN
        RETURN false;
    END IF;
    PERFORM add_audit(
        p_tenant, now_ms(p_at), CASE WHEN p_id IS NULL THEN 'auto_approve.off' ELSE 'auto_approve.on' END, p_actor, p_thread,
        CASE WHEN p_id IS NULL THEN '{}' ELSE '{"grant_id":' || to_json(p_id) || '}' END
    );
    FOR ended IN
        SELECT g.id, g.given_by, g.tool FROM grants g
        WHERE g.thread = the_thread AND NOT g.revoked AND (p_id IS NULL OR g.tool IS NULL) ORDER BY g.id
    LOOP
        PERFORM record_revoked_grant(p_tenant, p_thread, ended.id, ended.given_by, ended.tool, p_actor, p_at);
    END LOOP;
    -- No log contains this grant, so nothing refers to the row.
    DELETE FROM grants WHERE thread = the_thread AND tool IS NULL AND NOT revoked;
    IF p_id IS NULL THEN
        UPDATE grants SET revoked = true WHERE thread = the_thread AND tool IS NOT NULL AND NOT revoked;
    ELSE
        INSERT INTO grants (tenant, id, thread, given_by, since) VALUES (p_tenant, p_id, the_thread, p_by, now_ms(p_at));
    END IF;
    RETURN true;
END $$;

-- Deletes a locked thread and everything that is stored for its runs.
CREATE FUNCTION drop_thread(p_thread bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    the_runs bigint[];
BEGIN
    SELECT coalesce(array_agg(run), '{}') INTO the_runs FROM runs WHERE thread = p_thread;
    DELETE FROM commits WHERE run = ANY (the_runs);
    DELETE FROM inbox WHERE run = ANY (the_runs);
    DELETE FROM suspensions WHERE run = ANY (the_runs);
    DELETE FROM decisions WHERE run = ANY (the_runs);
    DELETE FROM remembered WHERE run = ANY (the_runs);
    DELETE FROM post_keys WHERE thread = p_thread;
    DELETE FROM messages WHERE thread = p_thread;
    DELETE FROM call_ids WHERE thread = p_thread;
    DELETE FROM grants WHERE thread = p_thread;
    DELETE FROM plugin_state WHERE thread = p_thread;
    DELETE FROM brought WHERE thread = p_thread;
    DELETE FROM runs WHERE thread = p_thread;
    DELETE FROM threads WHERE thread = p_thread;
END $$;

-- Deletes a thread and, recursively, the threads of the runs that its runs have delegated to. Unless `p_decided`, only
-- if none of their approvals was decided.
CREATE FUNCTION delete_thread(p_tenant text, p_thread text, p_decided boolean, p_actor jsonb, p_at bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    the_thread bigint;
    family bigint[];
BEGIN
    SELECT thread INTO the_thread FROM threads WHERE tenant = p_tenant AND id = p_thread FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    family := family_of(the_thread);
    PERFORM 1 FROM threads WHERE thread = ANY (family) ORDER BY thread FOR UPDATE;
    -- A separate statement, to see the rows as they are after waiting for the locks.
    IF EXISTS (SELECT 1 FROM runs WHERE thread = ANY (family) AND ended_at IS NULL)
        OR family <> family_of(the_thread) THEN
        RETURN 'stale';
    END IF;
    IF NOT p_decided AND EXISTS (
        SELECT 1 FROM unnest(family) AS f (thread) WHERE cardinality(decided_approvals(f.thread)) > 0
    ) THEN
        RETURN 'nothing';
    END IF;
    PERFORM record_deleted_thread(f.thread, 'thread.deleted', p_actor, p_at), drop_thread(f.thread)
    FROM unnest(family) AS f (thread);
    RETURN 'deleted';
END $$;

-- Retention deletes whole threads once all their runs have ended long enough ago, a bounded number at a time.
--
-- A run that delegated has child runs on other threads. These threads are one family. They are deleted together, once
-- every run on them has ended long enough ago. A thread that never had a run has not ended, and is kept.

-- A thread and, recursively, the threads of the runs that its runs have delegated to.
CREATE FUNCTION family_of(p_thread bigint) RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
    WITH RECURSIVE family (thread) AS (
        SELECT p_thread
        UNION
        SELECT c.thread FROM family f JOIN runs r ON r.thread = f.thread JOIN runs c ON c.parent = r.run
    )
    SELECT array_agg(thread ORDER BY thread) FROM family
$$;

CREATE FUNCTION have_ended(p_threads bigint[], p_before bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM runs WHERE thread = ANY (p_threads) AND (ended_at IS NULL OR ended_at >= p_before)
    )
$$;

-- Examines the threads after `p_behind`, and deletes, or only counts, those that are due. `seen` is the last thread
-- that was examined; null if there are no more.
CREATE FUNCTION prune(
    p_behind bigint, p_look_max integer, p_thread_max integer, p_event_max bigint, p_before bigint, p_deletes boolean,
    OUT seen bigint, OUT looked_at bigint, OUT threads_gone bigint, OUT runs_gone bigint, OUT events_gone bigint
) LANGUAGE plpgsql AS $$
DECLARE
    one record;
    family bigint[];
    its_runs bigint;
    its_events bigint;
BEGIN
    looked_at := 0;
    threads_gone := 0;
    runs_gone := 0;
    events_gone := 0;
    FOR one IN
        SELECT t.thread,
            (SELECT true FROM runs r WHERE r.thread = t.thread LIMIT 1) IS NOT NULL
            AND have_ended(ARRAY[t.thread], p_before)
            -- The thread of a child run is deleted with the thread of its parent.
            AND (
                SELECT true FROM runs r JOIN runs p ON p.run = r.parent
                WHERE r.thread = t.thread AND p.thread <> t.thread LIMIT 1
            ) IS NULL AS may_go
        FROM threads t WHERE t.thread > p_behind ORDER BY t.thread LIMIT p_look_max
    LOOP
        seen := one.thread;
        looked_at := looked_at + 1;
        CONTINUE WHEN NOT one.may_go;
        family := family_of(one.thread);
        IF p_deletes THEN
            -- Another transaction is about to change one of the threads, so it is in use.
            CONTINUE WHEN cardinality(family) > (
                SELECT count(*) FROM (
                    SELECT 1 FROM threads WHERE thread = ANY (family) FOR UPDATE SKIP LOCKED
                ) AS locked
            );
        END IF;
        -- A separate statement, to see the rows as they are after waiting for the locks.
        CONTINUE WHEN NOT have_ended(family, p_before);
        SELECT count(*), coalesce(sum(seq), 0) INTO its_runs, its_events FROM runs WHERE thread = ANY (family);
        IF p_deletes THEN
            PERFORM record_deleted_thread(f.thread, 'thread.pruned', '{"by":"system"}', NULL), drop_thread(f.thread)
            FROM unnest(family) AS f (thread);
        END IF;
        threads_gone := threads_gone + cardinality(family);
        runs_gone := runs_gone + its_runs;
        events_gone := events_gone + its_events;
        EXIT WHEN threads_gone >= p_thread_max OR events_gone >= p_event_max;
    END LOOP;
END $$;
