-- Batched commits of one node: one transaction, and each statement covers all of them. They share a sync, a round trip
-- and most of the database's work.
--
-- Only simple commits are batched: events, messages, calls, suspensions and decisions. No other transaction may have
-- locked the run or its thread, and the inbox must be empty, so that no accepted item is unprocessed. Any other commit
-- is answered with 'alone' and writes nothing: its node sends it again by itself, and the single-commit function
-- decides. No statement waits for a lock of an existing row, so there is no deadlock. Impossible input raises an
-- exception, which rolls back the whole batch. Then each commit is sent by itself, and only the impossible one is
-- refused.

-- One commit for each of several runs. Messages and calls refer to their run by its position. `p_besides` has what only
-- few commits write: suspensions that are opened and closed, audit records, and decisions that the worker accepted. The answers are in
-- the order of the runs: 'held', 'fenced', 'behind' or 'alone'. Tenant and id of a run are compared too: if a server
-- that lost its last commits has replaced another one, it assigns run numbers a second time.
CREATE FUNCTION append_batch(
    p_node bigint, p_at bigint, p_runs bigint[], p_tenants text[], p_ids text[], p_epochs bigint[], p_expected bigint[],
    p_versions bigint[], p_seqs bigint[],
    p_statuses text[], p_wake_ats bigint[], p_in_doubt boolean[], p_started_ats bigint[], p_ended_ats bigint[],
    p_checkpoints text[], p_controls bytea[], p_bodies text[], p_anchors bytea[], p_contents bytea[],
    p_message_places integer[], p_message_nths integer[],
    p_message_ids text[], p_message_seqs bigint[], p_message_roles text[], p_call_places integer[], p_call_ids text[],
    p_beside_places integer[], p_besides jsonb[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    many CONSTANT integer := cardinality(p_runs);
    locked bigint[];
    held_places bigint[];
    held_threads bigint[];
    held_hashes bytea[];
    -- By the position of the run; null if nothing is written for it.
    threads bigint[];
    hashes bytea[];
    outcomes text[] := array_fill('held'::text, ARRAY[many]);
    one record;
BEGIN
    IF lease_state(p_node, p_at) <> 'held' THEN
        RETURN array_fill('alone'::text, ARRAY[many]);
    END IF;
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT r.run FROM runs r JOIN threads t ON t.thread = r.thread
        WHERE r.run = ANY (p_runs) FOR NO KEY UPDATE OF t, r SKIP LOCKED
    ) AS l;
    -- A separate statement, to see the rows as they are once locked. Runs are found by number; the rest is compared
    -- here.
    WITH held AS (
        UPDATE runs r SET
            seq = p_seqs[e.i], version = r.version + 1, status = p_statuses[e.i],
            holds = r.holds AND p_ended_ats[e.i] IS NULL, node = CASE WHEN p_ended_ats[e.i] IS NULL THEN p_node END,
            doubt_at = NULL, wake_at = p_wake_ats[e.i], in_doubt = p_in_doubt[e.i],
            started_at = coalesce(r.started_at, p_started_ats[e.i]), ended_at = p_ended_ats[e.i],
            control = p_controls[e.i], ready = 0, ready_at = NULL,
            promised = CASE
                WHEN r.started_at IS NULL AND p_started_ats[e.i] IS NULL AND p_ended_ats[e.i] IS NULL THEN r.promised
            END,
            chain_head = link(r.chain_head, p_anchors[e.i], p_contents[e.i]),
            chain_from = coalesce(r.chain_from, p_expected[e.i] + 1)
        FROM unnest(p_runs) WITH ORDINALITY AS e (run, i)
        WHERE r.run = e.run AND r.run = ANY (locked) AND CASE
            WHEN r.seq <> p_expected[e.i] OR r.epoch <> p_epochs[e.i] OR r.node IS DISTINCT FROM p_node THEN false
            WHEN r.tenant <> p_tenants[e.i] OR r.id <> p_ids[e.i] OR r.version <> p_versions[e.i] THEN false
            WHEN (SELECT true FROM inbox i WHERE i.run = e.run LIMIT 1) THEN false
            -- Another run is queued.
            WHEN p_ended_ats[e.i] IS NOT NULL AND (
                SELECT true FROM runs q
                WHERE q.thread = r.thread AND q.ended_at IS NULL AND NOT q.holds AND q.run <> e.run LIMIT 1
            ) THEN false
            -- The id of a decision was used before.
            WHEN e.i = ANY (p_beside_places) THEN (
                SELECT true FROM unnest(p_beside_places, p_besides) AS b (place, beside)
                CROSS JOIN LATERAL jsonb_array_elements(b.beside -> 'accepted') AS a
                JOIN decisions d ON d.run = e.run AND d.id = a ->> 'decision_id'
                WHERE b.place = e.i LIMIT 1
            ) IS NULL
            ELSE true
        END
        RETURNING e.i AS place, r.thread, r.chain_head
    )
    SELECT array_agg(h.place), array_agg(h.thread), array_agg(h.chain_head) INTO held_places, held_threads, held_hashes
    FROM (SELECT place, thread, chain_head FROM held ORDER BY place) AS h;
    IF held_places IS NULL OR cardinality(held_places) < many THEN
        threads := array_fill(NULL::bigint, ARRAY[many]);
        hashes := array_fill(NULL::bytea, ARRAY[many]);
        FOR i IN 1 .. coalesce(cardinality(held_places), 0) LOOP
            threads[held_places[i]] := held_threads[i];
            hashes[held_places[i]] := held_hashes[i];
        END LOOP;
        SELECT array_agg(CASE
            WHEN threads[e.i] IS NOT NULL THEN 'held'
            WHEN r.run IS NULL THEN 'alone'
            WHEN r.seq <> p_expected[e.i] OR r.epoch <> p_epochs[e.i] OR r.node IS DISTINCT FROM p_node THEN 'fenced'
            WHEN r.tenant <> p_tenants[e.i] OR r.id <> p_ids[e.i] THEN 'fenced'
            WHEN r.version <> p_versions[e.i] THEN 'behind'
            ELSE 'alone'
        END ORDER BY e.i) INTO outcomes
        FROM unnest(p_runs) WITH ORDINALITY AS e (run, i)
        LEFT JOIN runs r ON r.run = e.run AND r.run = ANY (locked);
        SELECT coalesce(array_agg(m.place), '{}'), array_agg(m.nth), array_agg(m.id), array_agg(m.seq), array_agg(m.role)
        INTO p_message_places, p_message_nths, p_message_ids, p_message_seqs, p_message_roles
        FROM unnest(p_message_places, p_message_nths, p_message_ids, p_message_seqs, p_message_roles)
            AS m (place, nth, id, seq, role)
        WHERE threads[m.place] IS NOT NULL;
        SELECT coalesce(array_agg(c.place), '{}'), array_agg(c.id) INTO p_call_places, p_call_ids
        FROM unnest(p_call_places, p_call_ids) AS c (place, id) WHERE threads[c.place] IS NOT NULL;
    ELSE
        threads := held_threads;
        hashes := held_hashes;
    END IF;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
    SELECT p_tenants[e.i], e.run, p_expected[e.i] + 1, p_seqs[e.i], p_checkpoints[e.i], p_bodies[e.i], hashes[e.i]
    FROM unnest(p_runs) WITH ORDINALITY AS e (run, i) WHERE threads[e.i] IS NOT NULL;
    IF cardinality(p_message_places) > 0 THEN
        PERFORM write_messages(
            p_tenants, threads, p_runs, p_message_places, p_message_nths, p_message_ids, p_message_seqs, p_message_roles
        );
    END IF;
    IF cardinality(p_call_places) > 0 THEN
        PERFORM write_calls(p_tenants, threads, p_runs, p_call_places, p_call_ids);
    END IF;
    IF cardinality(p_beside_places) > 0 THEN
        FOR one IN
            SELECT p_tenants[b.place] AS tenant, p_runs[b.place] AS run, b.beside
            FROM unnest(p_beside_places, p_besides) AS b (place, beside) WHERE threads[b.place] IS NOT NULL
        LOOP
            PERFORM write_suspensions(one.tenant, one.run, one.beside);
            IF one.beside ? 'audit' THEN
                PERFORM write_audit(one.tenant, one.beside);
            END IF;
            PERFORM record_decision(one.tenant, one.run, a) FROM jsonb_array_elements(one.beside -> 'accepted') AS a;
        END LOOP;
    END IF;
    RETURN outcomes;
END $$;

-- Creates runs that the node holds, each on its own free thread that no other transaction has locked. The answers are
-- in the order of the runs; a run with a null answer is sent by itself. Messages, calls and inline agents refer to
-- their run by its position.
CREATE FUNCTION create_batch(
    p_node bigint, p_at bigint, p_tenants text[], p_threads text[], p_seen_threads bigint[], p_seen_heads text[],
    p_ids text[], p_agents text[], p_user_messages text[], p_seqs bigint[], p_statuses text[], p_wake_ats bigint[],
    p_in_doubt boolean[], p_created_ats bigint[], p_started_ats bigint[], p_checkpoints text[], p_controls bytea[],
    p_bodies text[], p_hashes bytea[], p_message_places integer[], p_message_nths integer[], p_message_ids text[],
    p_message_seqs bigint[], p_message_roles text[], p_call_places integer[], p_call_ids text[], p_brought_places integer[],
    p_brought_digests bytea[], p_brought_texts text[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    threads bigint[];
    created bigint[];
BEGIN
    IF lease_state(p_node, p_at) <> 'held' THEN
        RETURN array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
    END IF;
    -- Waits for transactions that create the same threads, in the order of tenants and ids.
    WITH made AS (
        INSERT INTO threads (tenant, id, created_at, metadata)
        SELECT p_tenants[e.i], e.id, now_ms(p_at), 'null' FROM unnest(p_threads) WITH ORDINALITY AS e (id, i)
        WHERE p_seen_threads[e.i] IS NULL ORDER BY p_tenants[e.i], e.id
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread, tenant, id
    )
    SELECT array_agg(m.thread ORDER BY e.i) INTO threads
    FROM unnest(p_threads) WITH ORDINALITY AS e (id, i)
    LEFT JOIN made m ON m.id = e.id AND m.tenant = p_tenants[e.i];
    IF cardinality(array_remove(p_seen_threads, NULL)) > 0 THEN
        WITH found AS (
            SELECT t.thread, t.tenant, t.id FROM unnest(p_tenants, p_threads, p_seen_threads) AS e (tenant, id, thread)
            JOIN threads t ON t.thread = e.thread AND t.tenant = e.tenant AND t.id = e.id
            FOR NO KEY UPDATE OF t SKIP LOCKED
        )
        SELECT array_agg(coalesce(e.made, f.thread) ORDER BY e.place) INTO threads
        FROM unnest(p_tenants, p_threads, threads) WITH ORDINALITY AS e (tenant, thread, made, place)
        LEFT JOIN found f ON f.tenant = e.tenant AND f.id = e.thread;
        -- A separate statement, to see the rows as they are once locked. A new thread has no rows yet.
        SELECT array_agg(CASE
            WHEN e.seen IS NULL OR (
                (SELECT m.id FROM messages m WHERE m.thread = e.thread ORDER BY m.place DESC LIMIT 1)
                    IS NOT DISTINCT FROM e.head
                AND (SELECT true FROM runs r WHERE r.thread = e.thread AND r.ended_at IS NULL LIMIT 1) IS NULL
                AND (SELECT true FROM messages m WHERE m.thread = e.thread AND m.id = e.user_message LIMIT 1) IS NULL
                AND (starts_with(e.user_message, 'msg_') IS NOT TRUE OR (
                    SELECT true FROM call_ids c WHERE c.thread = e.thread AND c.id = substr(e.user_message, 5) LIMIT 1
                ) IS NULL)
            ) THEN e.thread
        END ORDER BY e.place) INTO threads
        FROM unnest(threads, p_seen_threads, p_seen_heads, p_user_messages) WITH ORDINALITY
            AS e (thread, seen, head, user_message, place);
    END IF;
    WITH made AS (
        INSERT INTO runs (
            tenant, id, thread, agent, promised, status, holds, seq, epoch, version, node, in_doubt, ready, wake_at, created_at,
            started_at, control, chain_head, chain_from
        )
        SELECT p_tenants[e.i], p_ids[e.i], e.thread, p_agents[e.i],
            CASE WHEN p_statuses[e.i] = 'queued' THEN p_user_messages[e.i] END, p_statuses[e.i], true, p_seqs[e.i], 1, 1,
            p_node, p_in_doubt[e.i], 0, p_wake_ats[e.i], p_created_ats[e.i], p_started_ats[e.i], p_controls[e.i],
            p_hashes[e.i], 1
        FROM unnest(threads) WITH ORDINALITY AS e (thread, i) WHERE e.thread IS NOT NULL
        RETURNING run, thread
    )
    SELECT array_agg(m.run ORDER BY e.i) INTO created
    FROM unnest(threads) WITH ORDINALITY AS e (thread, i) LEFT JOIN made m ON m.thread = e.thread;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body, hash)
    SELECT p_tenants[e.i], e.run, 1, p_seqs[e.i], p_checkpoints[e.i], p_bodies[e.i], p_hashes[e.i]
    FROM unnest(created) WITH ORDINALITY AS e (run, i) WHERE e.run IS NOT NULL;
    IF cardinality(p_message_places) > 0 THEN
        PERFORM write_messages(
            p_tenants, threads, created, array_agg(m.place), array_agg(m.nth), array_agg(m.id), array_agg(m.seq),
            array_agg(m.role)
        )
        FROM unnest(p_message_places, p_message_nths, p_message_ids, p_message_seqs, p_message_roles)
            AS m (place, nth, id, seq, role)
        WHERE created[m.place] IS NOT NULL HAVING count(*) > 0;
    END IF;
    IF cardinality(p_call_places) > 0 THEN
        PERFORM write_calls(p_tenants, threads, created, array_agg(c.place), array_agg(c.id))
        FROM unnest(p_call_places, p_call_ids) AS c (place, id) WHERE created[c.place] IS NOT NULL HAVING count(*) > 0;
    END IF;
    IF cardinality(p_brought_places) > 0 THEN
        INSERT INTO brought (tenant, thread, digest, text)
        SELECT p_tenants[b.place], threads[b.place], b.digest, b.text
        FROM unnest(p_brought_places, p_brought_digests, p_brought_texts) AS b (place, digest, text)
        WHERE created[b.place] IS NOT NULL
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN created;
END $$;
