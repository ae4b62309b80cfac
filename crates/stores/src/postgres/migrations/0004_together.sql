-- Commits of one node that come together, in one transaction and in statements over all of them: a sync, a round trip
-- and most of the work of the database are shared.
--
-- Only what is plain is done here: events, messages, calls, suspensions and decisions, on a thread and of a run that
-- nobody else is about to change and whose inbox is empty, so that nothing accepted is unheard. What is not plain is
-- answered with 'alone' and nothing is written of it: its node sends it by itself, and there it is judged. No lock is
-- waited for, so nobody can wait for each other. What cannot be is raised and undoes all of them; then each is sent by
-- itself too, and only the one that cannot be is refused.

-- Each of another run. `p_besides` has what few of them write: the suspensions that they open and close, and the decisions
-- that were accepted at the worker. The answers stand in the order of the runs: 'held', 'fenced' or 'alone'. A run is known
-- by its name too: where a server that lost its last commits took the place of another, a number is given out twice.
CREATE FUNCTION append_together(
    p_node bigint, p_at bigint, p_runs bigint[], p_tenants text[], p_ids text[], p_epochs bigint[], p_expected bigint[], p_seqs bigint[],
    p_statuses text[], p_wake_ats bigint[], p_in_doubt boolean[], p_started_ats bigint[], p_ended_ats bigint[],
    p_checkpoints text[], p_controls bytea[], p_bodies text[], p_message_runs bigint[],
    p_message_ids text[], p_message_seqs bigint[], p_message_roles text[], p_call_runs bigint[], p_call_ids text[],
    p_beside_runs bigint[], p_besides jsonb[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
    outcomes text[];
    kept bigint[];
    one record;
BEGIN
    IF standing_of(p_node, p_at) <> 'held' THEN
        RETURN array_fill('alone'::text, ARRAY[cardinality(p_runs)]);
    END IF;
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT r.run FROM runs r JOIN threads t ON t.thread = r.thread
        WHERE r.run = ANY (p_runs) FOR NO KEY UPDATE OF t, r SKIP LOCKED
    ) AS l;
    -- What was locked is read in a statement of its own.
    SELECT
        array_agg(e.outcome ORDER BY e.place), array_agg(e.run) FILTER (WHERE e.outcome = 'held')
    INTO outcomes, kept
    FROM (
        SELECT e.place, e.run, CASE
            WHEN r.run IS NULL THEN 'alone'
            WHEN r.seq <> e.expected OR r.epoch <> e.epoch OR r.node IS DISTINCT FROM p_node THEN 'fenced'
            WHEN r.tenant <> e.tenant OR r.id <> e.id THEN 'fenced'
            WHEN EXISTS (SELECT 1 FROM inbox i WHERE i.run = e.run) THEN 'alone'
            -- Somebody is in line.
            WHEN e.ended_at IS NOT NULL AND EXISTS (
                SELECT 1 FROM runs q
                WHERE q.thread = r.thread AND q.ended_at IS NULL AND NOT q.holds AND q.run <> e.run
            ) THEN 'alone'
            -- Something was accepted before it; there it hears that.
            WHEN e.run = ANY (p_beside_runs) AND EXISTS (
                SELECT 1 FROM unnest(p_beside_runs, p_besides) AS b (run, beside)
                WHERE b.run = e.run AND b.beside ? 'accepted'
                    AND has_lost(e.run, r.interrupt_accepted, b.beside -> 'accepted')
            ) THEN 'alone'
            ELSE 'held'
        END AS outcome
        FROM unnest(p_runs, p_tenants, p_ids, p_epochs, p_expected, p_ended_ats) WITH ORDINALITY
            AS e (run, tenant, id, epoch, expected, ended_at, place)
        LEFT JOIN runs r ON r.run = e.run AND r.run = ANY (locked)
    ) AS e;
    IF kept IS NULL THEN
        RETURN outcomes;
    END IF;
    UPDATE runs r SET
        seq = e.seq, change = r.change + 1, status = e.status, holds = r.holds AND e.ended_at IS NULL,
        node = CASE WHEN e.ended_at IS NULL THEN p_node END, doubt_at = NULL, wake_at = e.wake_at,
        in_doubt = e.in_doubt, started_at = coalesce(r.started_at, e.started_at), ended_at = e.ended_at,
        control = e.control, ready = 0, ready_at = NULL,
        promised = CASE WHEN r.started_at IS NULL AND e.started_at IS NULL AND e.ended_at IS NULL THEN r.promised END
    FROM unnest(
        p_runs, p_seqs, p_statuses, p_wake_ats, p_in_doubt, p_started_ats, p_ended_ats, p_controls
    ) AS e (run, seq, status, wake_at, in_doubt, started_at, ended_at, control)
    WHERE r.run = e.run AND r.run = ANY (kept);
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
    SELECT e.tenant, e.run, e.expected + 1, e.seq, e.checkpoint, e.body
    FROM unnest(p_tenants, p_runs, p_expected, p_seqs, p_checkpoints, p_bodies)
        AS e (tenant, run, expected, seq, checkpoint, body)
    WHERE e.run = ANY (kept);
    IF cardinality(kept) < cardinality(p_runs) THEN
        SELECT coalesce(array_agg(m.run), '{}'), array_agg(m.id), array_agg(m.seq), array_agg(m.role)
        INTO p_message_runs, p_message_ids, p_message_seqs, p_message_roles
        FROM unnest(p_message_runs, p_message_ids, p_message_seqs, p_message_roles) AS m (run, id, seq, role)
        WHERE m.run = ANY (kept);
        SELECT coalesce(array_agg(c.run), '{}'), array_agg(c.id) INTO p_call_runs, p_call_ids
        FROM unnest(p_call_runs, p_call_ids) AS c (run, id) WHERE c.run = ANY (kept);
    END IF;
    IF cardinality(p_message_runs) > 0 THEN
        PERFORM write_messages(p_message_runs, p_message_ids, p_message_seqs, p_message_roles);
    END IF;
    IF cardinality(p_call_runs) > 0 THEN
        PERFORM write_calls(p_call_runs, p_call_ids);
    END IF;
    FOR one IN
        SELECT r.tenant, r.run, b.beside FROM unnest(p_beside_runs, p_besides) AS b (run, beside)
        JOIN runs r ON r.run = b.run WHERE b.run = ANY (kept)
    LOOP
        PERFORM write_suspensions(one.tenant, one.run, one.beside);
        PERFORM remember(one.tenant, one.run, a) FROM jsonb_array_elements(one.beside -> 'accepted') AS a;
    END LOOP;
    RETURN outcomes;
END $$;

-- Runs that come into being in the hands of a node, each on a thread of its own that nobody else is about to change and
-- that is free. The answers stand in the order of the runs; one that is null is sent alone. Messages, calls and what came
-- with a message name their run by its place.
CREATE FUNCTION create_together(
    p_node bigint, p_at bigint, p_tenants text[], p_threads text[], p_exist boolean[], p_seen_heads text[],
    p_ids text[], p_agents text[], p_user_messages text[], p_seqs bigint[], p_statuses text[], p_wake_ats bigint[],
    p_in_doubt boolean[], p_created_ats bigint[], p_started_ats bigint[], p_checkpoints text[], p_controls bytea[],
    p_bodies text[], p_message_places integer[], p_message_ids text[], p_message_seqs bigint[],
    p_message_roles text[], p_call_places integer[], p_call_ids text[], p_brought_places integer[],
    p_brought_digests bytea[], p_brought_texts text[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    threads_there bigint[];
    created bigint[];
BEGIN
    IF standing_of(p_node, p_at) <> 'held' THEN
        RETURN array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
    END IF;
    -- Whoever creates the same thread at the same time is waited for, in the order of their names.
    WITH made AS (
        INSERT INTO threads (tenant, id, created_at, metadata)
        SELECT e.tenant, e.thread, now_ms(p_at), 'null' FROM unnest(p_tenants, p_threads, p_exist) AS e (tenant, thread, there)
        WHERE NOT e.there ORDER BY e.tenant, e.thread
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread, tenant, id
    ), found AS (
        SELECT t.thread, t.tenant, t.id FROM unnest(p_tenants, p_threads, p_exist) AS e (tenant, thread, there)
        JOIN threads t ON t.tenant = e.tenant AND t.id = e.thread
        WHERE e.there FOR NO KEY UPDATE OF t SKIP LOCKED
    )
    SELECT array_agg(coalesce(m.thread, f.thread) ORDER BY e.place) INTO threads_there
    FROM unnest(p_tenants, p_threads) WITH ORDINALITY AS e (tenant, thread, place)
    LEFT JOIN made m ON m.tenant = e.tenant AND m.id = e.thread
    LEFT JOIN found f ON f.tenant = e.tenant AND f.id = e.thread;
    -- What was locked is read in a statement of its own. A thread that was made has nothing yet.
    SELECT array_agg(CASE
        WHEN NOT e.there OR (
            (SELECT m.id FROM messages m WHERE m.thread = e.thread ORDER BY m.place DESC LIMIT 1)
                IS NOT DISTINCT FROM e.head
            AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread = e.thread AND r.ended_at IS NULL)
            AND (e.user_message IS NULL OR NOT (
                EXISTS (SELECT 1 FROM messages m WHERE m.thread = e.thread AND m.id = e.user_message)
                OR (starts_with(e.user_message, 'msg_') AND EXISTS (
                    SELECT 1 FROM call_ids c WHERE c.thread = e.thread AND c.id = substr(e.user_message, 5)
                ))
            ))
        ) THEN e.thread
    END ORDER BY e.place) INTO threads_there
    FROM unnest(threads_there, p_exist, p_seen_heads, p_user_messages) WITH ORDINALITY
        AS e (thread, there, head, user_message, place);
    WITH made AS (
        INSERT INTO runs (
            tenant, id, thread, agent, promised, status, holds, seq, epoch, node, in_doubt, ready, wake_at, created_at,
            started_at, control
        )
        SELECT e.tenant, e.id, e.thread, e.agent, CASE WHEN e.status = 'queued' THEN e.user_message END, e.status, true,
            e.seq, 1, p_node, e.in_doubt, 0, e.wake_at, e.created_at, e.started_at, e.control
        FROM unnest(
            p_tenants, threads_there, p_ids, p_agents, p_user_messages, p_statuses, p_seqs, p_in_doubt, p_wake_ats,
            p_created_ats, p_started_ats, p_controls
        ) AS e (
            tenant, thread, id, agent, user_message, status, seq, in_doubt, wake_at, created_at, started_at, control
        )
        WHERE e.thread IS NOT NULL
        RETURNING run, tenant, id
    )
    SELECT array_agg(m.run ORDER BY e.place) INTO created
    FROM unnest(p_tenants, p_ids) WITH ORDINALITY AS e (tenant, id, place)
    LEFT JOIN made m ON m.tenant = e.tenant AND m.id = e.id;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
    SELECT e.tenant, e.run, 1, e.seq, e.checkpoint, e.body
    FROM unnest(p_tenants, created, p_seqs, p_checkpoints, p_bodies) AS e (tenant, run, seq, checkpoint, body)
    WHERE e.run IS NOT NULL;
    PERFORM write_messages(array_agg(created[m.place]), array_agg(m.id), array_agg(m.seq), array_agg(m.role))
    FROM unnest(p_message_places, p_message_ids, p_message_seqs, p_message_roles) AS m (place, id, seq, role)
    WHERE created[m.place] IS NOT NULL HAVING count(*) > 0;
    PERFORM write_calls(array_agg(created[c.place]), array_agg(c.id))
    FROM unnest(p_call_places, p_call_ids) AS c (place, id) WHERE created[c.place] IS NOT NULL HAVING count(*) > 0;
    IF cardinality(p_brought_places) > 0 THEN
        INSERT INTO brought (tenant, thread, digest, text)
        SELECT r.tenant, r.thread, b.digest, b.text
        FROM unnest(p_brought_places, p_brought_digests, p_brought_texts) AS b (place, digest, text)
        JOIN runs r ON r.run = created[b.place]
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN created;
END $$;
