--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: holdpoint; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA holdpoint;


--
-- Name: append(bigint, bigint, bigint, bigint, jsonb, bytea, text, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.append(p_run bigint, p_node bigint, p_epoch bigint, p_expected bigint, p_entry jsonb, p_control bytea, p_body text, p_at bigint, OUT outcome text, OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    ends boolean := p_entry ->> 'ended_at' IS NOT NULL;
    entry record;
    before record;
    the_thread bigint;
    the_next bigint;
    next_run record;
    others bigint[];
    gone bigint;
BEGIN
    SELECT * INTO entry FROM jsonb_to_record(p_entry) AS e (
        tenant text, id text, of_run text, of_thread text, seq bigint, status text, wake_at bigint, in_doubt boolean,
        started_at bigint, ended_at bigint, interrupts boolean, checkpoint text, consumed bigint[],
        superseded_by text
    );
    SELECT thread INTO the_thread FROM runs WHERE run = p_run;
    IF ends OR p_entry ?| '{messages,calls,leave,state}' THEN
        PERFORM 1 FROM threads WHERE thread = the_thread FOR NO KEY UPDATE;
    END IF;
    IF ends THEN
        -- As `promote` has it: whoever superseded the run that ends, else the first in line. The line changes only
        -- while the thread is locked.
        SELECT run INTO the_next FROM runs
        WHERE thread = the_thread AND ended_at IS NULL AND NOT holds AND run <> p_run
        ORDER BY id IS NOT DISTINCT FROM entry.superseded_by DESC, run LIMIT 1;
    END IF;
    IF the_next IS NOT NULL OR p_entry ? 'deliver' THEN
        SELECT array_agg(run) INTO others FROM runs
        WHERE tenant = entry.tenant AND id IN (
            SELECT d ->> 'to' FROM jsonb_array_elements(coalesce(p_entry -> 'deliver', '[]')) AS d
        );
        PERFORM 1 FROM runs WHERE run = ANY (others || p_run || the_next) ORDER BY run FOR NO KEY UPDATE;
    END IF;
    SELECT r.tenant, r.id, r.seq, r.epoch, r.node, r.holds, r.interrupt_accepted, t.id AS thread INTO before
    FROM runs r JOIN threads t ON t.thread = r.thread WHERE r.run = p_run FOR NO KEY UPDATE OF r;
    IF NOT FOUND OR before.tenant <> entry.tenant OR before.id <> entry.id OR before.seq <> p_expected
        OR before.epoch <> p_epoch OR before.node IS DISTINCT FROM p_node THEN
        outcome := 'fenced';
        RETURN;
    END IF;
    outcome := standing_of(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    IF before.id <> entry.of_run OR before.thread <> entry.of_thread THEN
        PERFORM impossible(format('the control is of %s on %s', entry.of_run, entry.of_thread));
    END IF;
    IF (p_entry ? 'suspensions' AND overtakes(before.tenant, p_run, p_entry -> 'suspensions'))
        OR (p_entry ? 'accepted' AND has_lost(p_run, before.interrupt_accepted, p_entry -> 'accepted')) THEN
        outcome := 'behind';
        RETURN;
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
    UPDATE runs SET
        seq = entry.seq, change = change + 1, status = entry.status, holds = holds AND NOT ends,
        node = CASE WHEN NOT ends THEN p_node END, doubt_at = NULL, wake_at = entry.wake_at,
        in_doubt = entry.in_doubt, interrupt_accepted = interrupt_accepted OR entry.interrupts,
        started_at = coalesce(started_at, entry.started_at), ended_at = entry.ended_at, control = p_control,
        promised = CASE WHEN started_at IS NULL AND entry.started_at IS NULL AND NOT ends THEN promised END,
        ready = i.ready, ready_at = CASE WHEN i.ready = 1 THEN coalesce(ready_at, now_us(p_at)) END
    -- Whoever commits goes on with the run; what waits in its inbox is for whoever holds it.
    FROM (SELECT CASE WHEN EXISTS (SELECT 1 FROM inbox WHERE run = p_run) THEN 1 ELSE 0 END AS ready) AS i
    WHERE run = p_run;
    IF p_body IS NOT NULL THEN
        INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
        VALUES (before.tenant, p_run, p_expected + 1, entry.seq, entry.checkpoint, p_body);
    END IF;
    SELECT b.woken, b.rung_runs, b.rung_nodes INTO woken, rung_runs, rung_nodes
    FROM write_beside(before.tenant, the_thread, p_run, p_entry, p_at) AS b;
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


--
-- Name: append_together(bigint, bigint, bigint[], text[], text[], bigint[], bigint[], bigint[], text[], bigint[], boolean[], bigint[], bigint[], text[], bytea[], text[], integer[], integer[], text[], bigint[], text[], integer[], text[], integer[], jsonb[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.append_together(p_node bigint, p_at bigint, p_runs bigint[], p_tenants text[], p_ids text[], p_epochs bigint[], p_expected bigint[], p_seqs bigint[], p_statuses text[], p_wake_ats bigint[], p_in_doubt boolean[], p_started_ats bigint[], p_ended_ats bigint[], p_checkpoints text[], p_controls bytea[], p_bodies text[], p_message_places integer[], p_message_nths integer[], p_message_ids text[], p_message_seqs bigint[], p_message_roles text[], p_call_places integer[], p_call_ids text[], p_beside_places integer[], p_besides jsonb[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    many CONSTANT integer := cardinality(p_runs);
    locked bigint[];
    held_places bigint[];
    held_threads bigint[];
    -- By the place of the run; null where nothing is written.
    threads bigint[];
    outcomes text[] := array_fill('held'::text, ARRAY[many]);
    one record;
BEGIN
    IF standing_of(p_node, p_at) <> 'held' THEN
        RETURN array_fill('alone'::text, ARRAY[many]);
    END IF;
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT r.run FROM runs r JOIN threads t ON t.thread = r.thread
        WHERE r.run = ANY (p_runs) FOR NO KEY UPDATE OF t, r SKIP LOCKED
    ) AS l;
    -- What was locked is read in a statement of its own. A run is found by its number alone; all else is compared there.
    WITH held AS (
        UPDATE runs r SET
            seq = p_seqs[e.i], change = r.change + 1, status = p_statuses[e.i],
            holds = r.holds AND p_ended_ats[e.i] IS NULL, node = CASE WHEN p_ended_ats[e.i] IS NULL THEN p_node END,
            doubt_at = NULL, wake_at = p_wake_ats[e.i], in_doubt = p_in_doubt[e.i],
            started_at = coalesce(r.started_at, p_started_ats[e.i]), ended_at = p_ended_ats[e.i],
            control = p_controls[e.i], ready = 0, ready_at = NULL,
            promised = CASE
                WHEN r.started_at IS NULL AND p_started_ats[e.i] IS NULL AND p_ended_ats[e.i] IS NULL THEN r.promised
            END
        FROM unnest(p_runs) WITH ORDINALITY AS e (run, i)
        WHERE r.run = e.run AND r.run = ANY (locked) AND CASE
            WHEN r.seq <> p_expected[e.i] OR r.epoch <> p_epochs[e.i] OR r.node IS DISTINCT FROM p_node THEN false
            WHEN r.tenant <> p_tenants[e.i] OR r.id <> p_ids[e.i] THEN false
            WHEN (SELECT true FROM inbox i WHERE i.run = e.run LIMIT 1) THEN false
            -- Somebody is in line.
            WHEN p_ended_ats[e.i] IS NOT NULL AND (
                SELECT true FROM runs q
                WHERE q.thread = r.thread AND q.ended_at IS NULL AND NOT q.holds AND q.run <> e.run LIMIT 1
            ) THEN false
            -- Something was accepted before what it accepts.
            WHEN e.i = ANY (p_beside_places) THEN NOT EXISTS (
                SELECT 1 FROM unnest(p_beside_places, p_besides) AS b (place, beside)
                WHERE b.place = e.i AND b.beside ? 'accepted'
                    AND has_lost(e.run, r.interrupt_accepted, b.beside -> 'accepted')
            )
            ELSE true
        END
        RETURNING e.i AS place, r.thread
    )
    SELECT array_agg(h.place), array_agg(h.thread) INTO held_places, held_threads
    FROM (SELECT place, thread FROM held ORDER BY place) AS h;
    IF held_places IS NULL OR cardinality(held_places) < many THEN
        threads := array_fill(NULL::bigint, ARRAY[many]);
        FOR i IN 1 .. coalesce(cardinality(held_places), 0) LOOP
            threads[held_places[i]] := held_threads[i];
        END LOOP;
        SELECT array_agg(CASE
            WHEN threads[e.i] IS NOT NULL THEN 'held'
            WHEN r.run IS NULL THEN 'alone'
            WHEN r.seq <> p_expected[e.i] OR r.epoch <> p_epochs[e.i] OR r.node IS DISTINCT FROM p_node THEN 'fenced'
            WHEN r.tenant <> p_tenants[e.i] OR r.id <> p_ids[e.i] THEN 'fenced'
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
    END IF;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
    SELECT p_tenants[e.i], e.run, p_expected[e.i] + 1, p_seqs[e.i], p_checkpoints[e.i], p_bodies[e.i]
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
            PERFORM remember(one.tenant, one.run, a) FROM jsonb_array_elements(one.beside -> 'accepted') AS a;
        END LOOP;
    END IF;
    RETURN outcomes;
END $$;


--
-- Name: bear(text, bigint, jsonb, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.bear(p_tenant text, p_parent bigint, p_born jsonb, p_at bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    one record;
    the_thread bigint;
    the_run bigint;
    ids text[] := '{}';
BEGIN
    FOR one IN SELECT * FROM jsonb_to_recordset(p_born) AS b (
        thread text, id text, agent text, parent_call text, promised text, status text, in_doubt boolean,
        wake_at bigint, first_seq bigint, last_seq bigint, created_at bigint, control text, checkpoint text, body text
    ) LOOP
        INSERT INTO threads (tenant, id, created_at, metadata) VALUES (p_tenant, one.thread, now_ms(p_at), 'null')
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread INTO the_thread;
        IF NOT FOUND THEN
            PERFORM impossible(format('thread %s exists already', one.thread));
        END IF;
        INSERT INTO runs (
            tenant, id, thread, agent, parent, parent_call, promised, status, holds, seq, epoch, in_doubt, ready,
            ready_at, wake_at, created_at, control
        ) VALUES (
            p_tenant, one.id, the_thread, one.agent, CASE WHEN one.parent_call IS NOT NULL THEN p_parent END,
            one.parent_call, one.promised, one.status, true, one.last_seq, 0, one.in_doubt, 2, now_us(p_at), one.wake_at,
            one.created_at, decode(one.control, 'hex')
        ) RETURNING run INTO the_run;
        INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
        VALUES (p_tenant, the_run, one.first_seq, one.last_seq, one.checkpoint, one.body);
        ids := ids || one.id;
    END LOOP;
    RETURN ids;
END $$;


--
-- Name: claim_next(bigint, integer, text, bigint, boolean); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.claim_next(p_node bigint, p_limit integer, p_served text, p_at bigint, p_pressing boolean, OUT outcome text, OUT taken bigint[], OUT queued integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    started bigint[];
BEGIN
    taken := '{}';
    queued := 0;
    outcome := standing_of(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    SET LOCAL synchronous_commit = off;
    taken := claim_woken(p_node, p_limit, p_at, p_pressing);
    IF cardinality(taken) < p_limit AND NOT p_pressing THEN
        started := claim_startable(p_node, p_limit - cardinality(taken), p_served);
        queued := cardinality(started);
        taken := taken || started;
    END IF;
END $$;


--
-- Name: claim_run(bigint, text, text, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.claim_run(p_node bigint, p_tenant text, p_id text, p_at bigint, OUT outcome text, OUT queued integer, OUT seq bigint, OUT run bigint, OUT tenant text, OUT id text, OUT thread text, OUT epoch bigint, OUT holds boolean, OUT begins_after text, OUT doubt_at bigint, OUT control bytea, OUT tickets bigint[], OUT items text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    its_thread bigint;
    byte_count bigint;
BEGIN
    queued := 0;
    outcome := standing_of(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    SET LOCAL synchronous_commit = off;
    UPDATE runs r SET node = p_node, epoch = r.epoch + 1, ready = 0, ready_at = NULL
    WHERE r.tenant = p_tenant AND r.id = p_id AND r.node IS NULL AND r.ended_at IS NULL
    RETURNING r.seq, r.run, r.tenant, r.id, r.epoch, r.holds, r.begins_after, r.doubt_at, r.control, r.thread
    INTO seq, run, tenant, id, epoch, holds, begins_after, doubt_at, control, its_thread;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM still_stands(p_node, p_at);
    -- What was locked is read in a statement of its own.
    SELECT t.id, coalesce(claim_run.begins_after, (
        SELECT m.id FROM messages m WHERE m.thread = t.thread ORDER BY m.place DESC LIMIT 1
    )) INTO thread, begins_after
    FROM threads t WHERE t.thread = its_thread;
    SELECT coalesce(array_agg(i.ticket ORDER BY i.ticket), '{}'), coalesce(array_agg(i.item ORDER BY i.ticket), '{}'),
        sum(octet_length(i.item))
    INTO tickets, items, byte_count FROM inbox i WHERE i.run = claim_run.run;
    IF byte_count > 32768 THEN
        tickets := NULL;
        items := NULL;
    END IF;
END $$;


--
-- Name: claim_startable(bigint, integer, text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.claim_startable(p_node bigint, p_limit integer, p_served text) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    taken bigint[] := '{}';
    the_tenant text := p_served;
    next_tenant text;
    the_run bigint;
    found_in_round boolean := true;
BEGIN
    WHILE cardinality(taken) < p_limit LOOP
        IF the_tenant IS NULL THEN
            SELECT tenant INTO next_tenant FROM runs WHERE ready = 2 AND node IS NULL ORDER BY tenant LIMIT 1;
        ELSE
            SELECT tenant INTO next_tenant FROM runs
            WHERE ready = 2 AND node IS NULL AND tenant > the_tenant ORDER BY tenant LIMIT 1;
        END IF;
        IF next_tenant IS NULL THEN
            -- From the front again, as long as a round finds anything.
            EXIT WHEN NOT found_in_round;
            found_in_round := false;
            the_tenant := NULL;
            CONTINUE;
        END IF;
        the_tenant := next_tenant;
        SELECT run INTO the_run FROM runs
        WHERE ready = 2 AND node IS NULL AND tenant = the_tenant
        ORDER BY ready_at, run LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM give(the_run, p_node);
            taken := taken || the_run;
            found_in_round := true;
        END IF;
    END LOOP;
    RETURN taken;
END $$;


--
-- Name: claim_woken(bigint, integer, bigint, boolean); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.claim_woken(p_node bigint, p_limit integer, p_at bigint, p_pressing boolean) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    due_at bigint := now_ms(p_at);
    taken bigint[] := '{}';
    one record;
    seen_place bigint := -1;
    seen_run bigint := -1;
    tried integer;
BEGIN
    -- Others may be about to take all of these; then there are others behind them.
    LOOP
        tried := 0;
        FOR one IN
            SELECT c.run, c.place FROM (
                (SELECT run, ready_at AS place FROM runs
                WHERE ready = 1 AND node IS NULL AND (ready_at, run) > (seen_place, seen_run)
                    AND (interrupt_accepted OR NOT p_pressing)
                ORDER BY ready_at, run LIMIT p_limit)
                UNION ALL
                (SELECT run, wake_at * 1000 FROM runs
                WHERE node IS NULL AND wake_at <= due_at
                    AND (wake_at, run) >= (seen_place / 1000, CASE seen_place % 1000 WHEN 0 THEN seen_run ELSE -1 END)
                    AND (wake_at * 1000, run) > (seen_place, seen_run)
                ORDER BY wake_at, run LIMIT p_limit)
            ) AS c
            ORDER BY c.place, c.run LIMIT p_limit
        LOOP
            EXIT WHEN cardinality(taken) >= p_limit;
            tried := tried + 1;
            seen_place := one.place;
            seen_run := one.run;
            IF one.run <> ALL (taken) AND take_ready(one.run, p_node, due_at) THEN
                taken := taken || one.run;
            END IF;
        END LOOP;
        EXIT WHEN tried = 0;
    END LOOP;
    RETURN taken;
END $$;


--
-- Name: commit_is_possible(bigint, bigint, text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.commit_is_possible(first_seq bigint, last_seq bigint, checkpoint text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    RETURN first_seq >= 1 AND last_seq >= first_seq AND checkpoint IN (
        'user_message', 'assistant_turn', 'tool_results', 'replay_results', 'waiting', 'run_finished'
    );
END $$;


--
-- Name: create_run(text, text, jsonb, jsonb, bytea, text, bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.create_run(p_tenant text, p_thread text, p_seen jsonb, p_entry jsonb, p_control bytea, p_body text, p_node bigint, p_at bigint, OUT outcome text, OUT created bigint, OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    entry record;
    the_thread bigint;
    the_parent bigint;
    the_ready smallint;
BEGIN
    IF p_node IS NOT NULL THEN
        outcome := standing_of(p_node, p_at);
        IF outcome <> 'held' THEN
            RETURN;
        END IF;
    END IF;
    outcome := 'stale';
    IF (p_seen ->> 'exists')::boolean THEN
        SELECT thread INTO the_thread FROM threads WHERE tenant = p_tenant AND id = p_thread FOR NO KEY UPDATE;
    ELSE
        INSERT INTO threads (tenant, id, created_at, metadata) VALUES (p_tenant, p_thread, now_ms(p_at), 'null')
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread INTO the_thread;
    END IF;
    IF the_thread IS NULL OR NOT is_as_seen(the_thread, p_seen) THEN
        -- A thread that is new is as it was seen, so nothing is left behind here.
        RETURN;
    END IF;
    IF p_node IS NOT NULL THEN
        PERFORM still_stands(p_node, p_at);
    END IF;
    -- A thread that is new has no keys either.
    IF p_entry ? 'key_scope' AND EXISTS (
        SELECT 1 FROM post_keys WHERE thread = the_thread AND scope = p_entry ->> 'key_scope'
    ) THEN
        RETURN;
    END IF;
    SELECT * INTO entry FROM jsonb_to_record(p_entry) AS e (
        of_run text, agent text, parent text, parent_call text, begins_after text, user_message text, holds boolean,
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
    the_ready := CASE WHEN p_node IS NULL THEN ready_as(entry.status, entry.holds) ELSE 0 END;
    INSERT INTO runs (
        tenant, id, thread, agent, parent, parent_call, begins_after, promised, status, holds, seq, epoch, node,
        interrupt_accepted, in_doubt, ready, ready_at, wake_at, created_at, started_at, ended_at, control
    ) VALUES (
        p_tenant, entry.of_run, the_thread, entry.agent, the_parent,
        CASE WHEN the_parent IS NOT NULL THEN entry.parent_call END, entry.begins_after,
        CASE WHEN entry.status = 'queued' THEN entry.user_message END, entry.status, entry.holds, entry.seq,
        CASE WHEN p_node IS NULL THEN 0 ELSE 1 END, p_node, entry.interrupts, entry.in_doubt, the_ready,
        CASE WHEN the_ready <> 0 THEN now_us(p_at) END, entry.wake_at, entry.created_at, entry.started_at,
        entry.ended_at, p_control
    ) RETURNING run INTO created;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
    VALUES (p_tenant, created, 1, entry.seq, entry.checkpoint, p_body);
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
    FROM write_beside(p_tenant, the_thread, created, p_entry, p_at) AS b;
    outcome := 'created';
END $$;


--
-- Name: create_together(bigint, bigint, text[], text[], boolean[], text[], text[], text[], text[], bigint[], text[], bigint[], boolean[], bigint[], bigint[], text[], bytea[], text[], integer[], integer[], text[], bigint[], text[], integer[], text[], integer[], bytea[], text[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.create_together(p_node bigint, p_at bigint, p_tenants text[], p_threads text[], p_exist boolean[], p_seen_heads text[], p_ids text[], p_agents text[], p_user_messages text[], p_seqs bigint[], p_statuses text[], p_wake_ats bigint[], p_in_doubt boolean[], p_created_ats bigint[], p_started_ats bigint[], p_checkpoints text[], p_controls bytea[], p_bodies text[], p_message_places integer[], p_message_nths integer[], p_message_ids text[], p_message_seqs bigint[], p_message_roles text[], p_call_places integer[], p_call_ids text[], p_brought_places integer[], p_brought_digests bytea[], p_brought_texts text[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    threads bigint[];
    created bigint[];
BEGIN
    IF standing_of(p_node, p_at) <> 'held' THEN
        RETURN array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
    END IF;
    -- Whoever creates the same thread at the same time is waited for, in the order of their names.
    WITH made AS (
        INSERT INTO threads (tenant, id, created_at, metadata)
        SELECT p_tenants[e.i], e.id, now_ms(p_at), 'null' FROM unnest(p_threads) WITH ORDINALITY AS e (id, i)
        WHERE NOT p_exist[e.i] ORDER BY p_tenants[e.i], e.id
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread, tenant, id
    )
    SELECT array_agg(m.thread ORDER BY e.i) INTO threads
    FROM unnest(p_threads) WITH ORDINALITY AS e (id, i)
    LEFT JOIN made m ON m.id = e.id AND m.tenant = p_tenants[e.i];
    IF true = ANY (p_exist) THEN
        WITH found AS (
            SELECT t.thread, t.tenant, t.id FROM unnest(p_tenants, p_threads, p_exist) AS e (tenant, thread, there)
            JOIN threads t ON t.tenant = e.tenant AND t.id = e.thread
            WHERE e.there FOR NO KEY UPDATE OF t SKIP LOCKED
        )
        SELECT array_agg(coalesce(e.made, f.thread) ORDER BY e.place) INTO threads
        FROM unnest(p_tenants, p_threads, threads) WITH ORDINALITY AS e (tenant, thread, made, place)
        LEFT JOIN found f ON f.tenant = e.tenant AND f.id = e.thread;
        -- What was locked is read in a statement of its own. A thread that was made has nothing yet.
        SELECT array_agg(CASE
            WHEN NOT e.there OR (
                (SELECT m.id FROM messages m WHERE m.thread = e.thread ORDER BY m.place DESC LIMIT 1)
                    IS NOT DISTINCT FROM e.head
                AND (SELECT true FROM runs r WHERE r.thread = e.thread AND r.ended_at IS NULL LIMIT 1) IS NULL
                AND (SELECT true FROM messages m WHERE m.thread = e.thread AND m.id = e.user_message LIMIT 1) IS NULL
                AND (starts_with(e.user_message, 'msg_') IS NOT TRUE OR (
                    SELECT true FROM call_ids c WHERE c.thread = e.thread AND c.id = substr(e.user_message, 5) LIMIT 1
                ) IS NULL)
            ) THEN e.thread
        END ORDER BY e.place) INTO threads
        FROM unnest(threads, p_exist, p_seen_heads, p_user_messages) WITH ORDINALITY
            AS e (thread, there, head, user_message, place);
    END IF;
    WITH made AS (
        INSERT INTO runs (
            tenant, id, thread, agent, promised, status, holds, seq, epoch, node, in_doubt, ready, wake_at, created_at,
            started_at, control
        )
        SELECT p_tenants[e.i], p_ids[e.i], e.thread, p_agents[e.i],
            CASE WHEN p_statuses[e.i] = 'queued' THEN p_user_messages[e.i] END, p_statuses[e.i], true, p_seqs[e.i], 1,
            p_node, p_in_doubt[e.i], 0, p_wake_ats[e.i], p_created_ats[e.i], p_started_ats[e.i], p_controls[e.i]
        FROM unnest(threads) WITH ORDINALITY AS e (thread, i) WHERE e.thread IS NOT NULL
        RETURNING run, thread
    )
    SELECT array_agg(m.run ORDER BY e.i) INTO created
    FROM unnest(threads) WITH ORDINALITY AS e (thread, i) LEFT JOIN made m ON m.thread = e.thread;
    INSERT INTO commits (tenant, run, first_seq, last_seq, checkpoint, body)
    SELECT p_tenants[e.i], e.run, 1, p_seqs[e.i], p_checkpoints[e.i], p_bodies[e.i]
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


--
-- Name: delete_thread(text, text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.delete_thread(p_tenant text, p_thread text) RETURNS text
    LANGUAGE plpgsql
    AS $$
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
    -- What was locked is read in a statement of its own.
    IF EXISTS (SELECT 1 FROM runs WHERE thread = ANY (family) AND ended_at IS NULL)
        OR family <> family_of(the_thread) THEN
        RETURN 'stale';
    END IF;
    PERFORM drop_thread(f.thread) FROM unnest(family) AS f (thread);
    RETURN 'deleted';
END $$;


--
-- Name: drop_thread(bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.drop_thread(p_thread bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
    DELETE FROM leave WHERE thread = p_thread;
    DELETE FROM plugin_state WHERE thread = p_thread;
    DELETE FROM brought WHERE thread = p_thread;
    DELETE FROM runs WHERE thread = p_thread;
    DELETE FROM threads WHERE thread = p_thread;
END $$;


--
-- Name: end_accepted(bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.end_accepted(p_run bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM inbox i JOIN suspensions s ON s.run = i.run AND s.status = 'pending' AND s.answered_by = i.ticket
        WHERE i.run = p_run AND i.ends_run
    );
END $$;


--
-- Name: family_of(bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.family_of(p_thread bigint) RETURNS bigint[]
    LANGUAGE sql
    AS $$
    WITH RECURSIVE family (thread) AS (
        SELECT p_thread
        UNION
        SELECT c.thread FROM family f JOIN runs r ON r.thread = f.thread JOIN runs c ON c.parent = r.run
    )
    SELECT array_agg(thread ORDER BY thread) FROM family
$$;


--
-- Name: free_runs(bigint[], bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.free_runs(p_runs bigint[], p_doubt_at bigint, p_at bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    freed bigint;
BEGIN
    UPDATE runs SET
        node = NULL, doubt_at = greatest(doubt_at, p_doubt_at), ready = s.ready,
        ready_at = CASE WHEN s.ready <> 0 THEN coalesce(ready_at, now_us(p_at)) END
    FROM (
        SELECT run AS of_run,
            CASE
                WHEN (SELECT true FROM inbox i WHERE i.run = r.run LIMIT 1) THEN 1::smallint
                ELSE ready_as(r.status, r.holds)
            END AS ready
        FROM runs r WHERE run = ANY (p_runs)
    ) AS s
    WHERE run = s.of_run;
    GET DIAGNOSTICS freed = ROW_COUNT;
    RETURN freed;
END $$;


--
-- Name: give(bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.give(p_run bigint, p_node bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE runs SET node = p_node, epoch = epoch + 1, ready = 0, ready_at = NULL WHERE run = p_run;
END $$;


--
-- Name: given(bigint[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.given(p_runs bigint[]) RETURNS TABLE(seq bigint, run bigint, tenant text, id text, thread text, epoch bigint)
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN QUERY SELECT r.seq, r.run, r.tenant, r.id, t.id, r.epoch
    FROM unnest(p_runs) WITH ORDINALITY AS p (run, place)
    JOIN runs r ON r.run = p.run JOIN threads t ON t.thread = r.thread
    ORDER BY p.place;
END $$;


--
-- Name: hand_over(bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.hand_over(p_node bigint, p_at bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    locked bigint[];
BEGIN
    DELETE FROM nodes WHERE node = p_node;
    -- In the order of locks.
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT run FROM runs WHERE node = p_node ORDER BY run FOR NO KEY UPDATE
    ) AS l;
    RETURN free_runs(locked, NULL, p_at);
END $$;


--
-- Name: has_lost(bigint, boolean, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.has_lost(p_run bigint, p_interrupted boolean, p_accepted jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    one record;
    open_one record;
    ids text[] := '{}';
    answered text[] := '{}';
    interrupted boolean := p_interrupted;
    ends boolean := end_accepted(p_run);
BEGIN
    FOR one IN SELECT * FROM jsonb_to_recordset(p_accepted)
        AS a (kind text, call text, suspension text, decision_id text)
    LOOP
        IF interrupted OR (ends AND one.kind <> 'interrupt') THEN
            RETURN true;
        END IF;
        IF one.decision_id IS NOT NULL THEN
            IF one.decision_id = ANY (ids)
                OR EXISTS (SELECT 1 FROM decisions WHERE run = p_run AND id = one.decision_id) THEN
                RETURN true;
            END IF;
            ids := ids || one.decision_id;
        END IF;
        interrupted := one.kind = 'interrupt';
        IF one.kind IN ('decision', 'late_answer') THEN
            SELECT id, answered_by INTO open_one FROM suspensions
            WHERE run = p_run AND call = one.call AND status = 'pending';
            IF one.kind = 'decision' AND (NOT FOUND OR open_one.id <> one.suspension) THEN
                RETURN true;
            END IF;
            IF open_one.id IS NOT NULL THEN
                IF open_one.answered_by IS NOT NULL OR open_one.id = ANY (answered) THEN
                    RETURN true;
                END IF;
                answered := answered || open_one.id;
            END IF;
        END IF;
    END LOOP;
    RETURN false;
END $$;


--
-- Name: have_ended(bigint[], bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.have_ended(p_threads bigint[], p_before bigint) RETURNS boolean
    LANGUAGE sql
    AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM runs WHERE thread = ANY (p_threads) AND (ended_at IS NULL OR ended_at >= p_before)
    )
$$;


--
-- Name: impossible(text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.impossible(why text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'HPI00', MESSAGE = why;
END $$;


--
-- Name: is_as_seen(bigint, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.is_as_seen(p_thread bigint, p_seen jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    shown record;
BEGIN
    -- Whoever is in front neither starts nor ends while this looks.
    PERFORM 1 FROM runs WHERE thread = p_thread AND ended_at IS NULL AND id = p_seen ->> 'front' FOR NO KEY UPDATE;
    SELECT head, front, front_status, front_in_doubt, queued INTO shown FROM threads_shown WHERE thread = p_thread;
    RETURN shown.head IS NOT DISTINCT FROM p_seen ->> 'head'
        AND shown.front IS NOT DISTINCT FROM p_seen ->> 'front'
        AND (shown.front IS NULL OR (
            -- The words that mean the same to a new message.
            p_seen -> 'front_is' ? shown.front_status
            AND shown.front_in_doubt = (p_seen ->> 'in_doubt')::boolean
            AND shown.queued = (p_seen ->> 'queued')::bigint
        ));
END $$;


--
-- Name: join_nodes(text, bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.join_nodes(p_name text, p_lease_ms bigint, p_at bigint, OUT joined bigint, OUT at_ms bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    at_ms := now_ms(p_at);
    INSERT INTO nodes (name, started_at, expires_at) VALUES (p_name, at_ms, at_ms + p_lease_ms)
    RETURNING node INTO joined;
END $$;


--
-- Name: load_held(bigint, text, text, bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.load_held(p_run bigint, p_tenant text, p_id text, p_node bigint, p_epoch bigint) RETURNS TABLE(run bigint, tenant text, id text, thread text, epoch bigint, holds boolean, begins_after text, doubt_at bigint, control bytea, tickets bigint[], items text[])
    LANGUAGE plpgsql
    AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    PERFORM 1 FROM runs r
    WHERE r.run = p_run AND r.tenant = p_tenant AND r.id = p_id AND r.node = p_node AND r.epoch = p_epoch
    FOR NO KEY UPDATE;
    IF FOUND AND EXISTS (SELECT 1 FROM nodes n WHERE n.node = p_node) THEN
        RETURN QUERY SELECT * FROM loaded(ARRAY[p_run]);
    END IF;
END $$;


--
-- Name: loaded(bigint[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.loaded(p_runs bigint[]) RETURNS TABLE(run bigint, tenant text, id text, thread text, epoch bigint, holds boolean, begins_after text, doubt_at bigint, control bytea, tickets bigint[], items text[])
    LANGUAGE sql STABLE
    AS $$
    SELECT
        r.run, r.tenant, r.id, t.id, r.epoch, r.holds,
        coalesce(r.begins_after, (SELECT m.id FROM messages m WHERE m.thread = t.thread ORDER BY m.place DESC LIMIT 1)),
        r.doubt_at, r.control,
        ARRAY(SELECT i.ticket FROM inbox i WHERE i.run = r.run ORDER BY i.ticket),
        ARRAY(SELECT i.item FROM inbox i WHERE i.run = r.run ORDER BY i.ticket)
    FROM unnest(p_runs) WITH ORDINALITY AS p (run, place)
    JOIN runs r ON r.run = p.run JOIN threads t ON t.thread = r.thread
    ORDER BY p.place
$$;


--
-- Name: message_is_possible(bigint, text, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.message_is_possible(seq bigint, role text, place bigint) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    RETURN seq >= 1 AND role IN ('user', 'assistant', 'tool', 'note') AND place >= 1;
END $$;


--
-- Name: now_ms(bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.now_ms(at bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT coalesce(at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;


--
-- Name: now_us(bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.now_us(at bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT coalesce(at * 1000, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;


--
-- Name: overtakes(text, bigint, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.overtakes(p_tenant text, p_run bigint, p_suspensions jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM jsonb_to_recordset(p_suspensions) AS c (id text, opens boolean, heard bigint[], ticket bigint)
        JOIN suspensions s ON s.tenant = p_tenant AND s.id = c.id AND s.run = p_run
        WHERE NOT c.opens AND s.answered_by IS NOT NULL AND s.answered_by <> ALL (c.heard)
            AND (c.ticket IS NULL OR c.ticket > s.answered_by)
    );
END $$;


--
-- Name: prune(bigint, integer, integer, bigint, bigint, boolean); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.prune(p_behind bigint, p_look_max integer, p_thread_max integer, p_event_max bigint, p_before bigint, p_deletes boolean, OUT seen bigint, OUT looked_at bigint, OUT threads_gone bigint, OUT runs_gone bigint, OUT events_gone bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
            -- It goes with whoever delegated to it.
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
            -- Somebody is about to change one of them: it has not ended.
            CONTINUE WHEN cardinality(family) > (
                SELECT count(*) FROM (
                    SELECT 1 FROM threads WHERE thread = ANY (family) FOR UPDATE SKIP LOCKED
                ) AS locked
            );
        END IF;
        -- What was locked is read in a statement of its own.
        CONTINUE WHEN NOT have_ended(family, p_before);
        SELECT count(*), coalesce(sum(seq), 0) INTO its_runs, its_events FROM runs WHERE thread = ANY (family);
        IF p_deletes THEN
            PERFORM drop_thread(f.thread) FROM unnest(family) AS f (thread);
        END IF;
        threads_gone := threads_gone + cardinality(family);
        runs_gone := runs_gone + its_runs;
        events_gone := events_gone + its_events;
        EXIT WHEN threads_gone >= p_thread_max OR events_gone >= p_event_max;
    END LOOP;
END $$;


--
-- Name: put(text, bigint, jsonb, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.put(p_tenant text, p_run bigint, p_item jsonb, p_at bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    the_ticket bigint;
BEGIN
    INSERT INTO inbox (tenant, run, kind, call, arguments, ends_run, item)
    VALUES (
        p_tenant, p_run, p_item ->> 'kind', p_item ->> 'early_call', decode(p_item ->> 'arguments', 'hex'),
        (p_item ->> 'ends_run')::boolean, p_item ->> 'text'
    ) RETURNING ticket INTO the_ticket;
    UPDATE runs SET
        ready_at = CASE WHEN ready = 1 THEN ready_at ELSE now_us(p_at) END, ready = 1, change = change + 1,
        interrupt_accepted = interrupt_accepted OR p_item ->> 'kind' = 'interrupt'
    WHERE run = p_run;
    PERFORM remember(p_tenant, p_run, p_item);
    RETURN the_ticket;
END $$;


--
-- Name: ready_as(text, boolean); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.ready_as(status text, holds boolean) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT (CASE
        WHEN status IN ('running', 'interrupting') THEN 1
        WHEN status = 'queued' AND holds THEN 2
        ELSE 0
    END)::smallint
$$;


--
-- Name: release(bigint, text, text, bigint, bigint, bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.release(p_run bigint, p_tenant text, p_id text, p_node bigint, p_epoch bigint, p_seq bigint, p_at bigint, OUT outcome text, OUT waits boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    before record;
    has_items boolean;
    as_ready smallint;
BEGIN
    SELECT tenant, id, status, holds, epoch, node, seq INTO before FROM runs WHERE run = p_run FOR NO KEY UPDATE;
    IF NOT FOUND OR before.epoch <> p_epoch OR before.node IS DISTINCT FROM p_node
        OR before.tenant <> p_tenant OR before.id <> p_id THEN
        outcome := 'fenced';
        RETURN;
    END IF;
    has_items := EXISTS (SELECT 1 FROM inbox WHERE run = p_run);
    IF before.seq <> p_seq OR (has_items AND p_seq IS NOT NULL) THEN
        outcome := 'kept';
        RETURN;
    END IF;
    SET LOCAL synchronous_commit = off;
    as_ready := CASE WHEN has_items THEN 1 ELSE ready_as(before.status, before.holds) END;
    UPDATE runs SET
        node = NULL, ready = as_ready,
        ready_at = CASE WHEN as_ready <> 0 THEN coalesce(ready_at, now_us(p_at)) END
    WHERE run = p_run;
    outcome := 'released';
    waits := as_ready <> 0;
END $$;


--
-- Name: release_together(bigint[], text[], text[], bigint, bigint[], bigint[], bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.release_together(p_runs bigint[], p_tenants text[], p_ids text[], p_node bigint, p_epochs bigint[], p_seqs bigint[], p_at bigint) RETURNS TABLE(run bigint, outcome text, waits boolean)
    LANGUAGE plpgsql
    AS $$
BEGIN
    FOR run, outcome, waits IN
        SELECT e.run, r.outcome, r.waits FROM (
            SELECT * FROM unnest(p_runs, p_tenants, p_ids, p_epochs, p_seqs) AS u (run, tenant, id, epoch, seq)
            ORDER BY u.run
        ) AS e CROSS JOIN LATERAL release(e.run, e.tenant, e.id, p_node, e.epoch, e.seq, p_at) AS r
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;


--
-- Name: remember(text, bigint, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.remember(p_tenant text, p_run bigint, p_item jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF p_item ->> 'decision' IS NOT NULL THEN
        INSERT INTO decisions (tenant, run, id, decision)
        VALUES (p_tenant, p_run, p_item ->> 'decision_id', p_item ->> 'decision');
    END IF;
END $$;


--
-- Name: remember_answer(text, text, text, bytea, integer, text, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.remember_answer(p_tenant text, p_run text, p_scope text, p_body bytea, p_status integer, p_answer text, p_most bigint) RETURNS TABLE(kept_body bytea, kept_status integer, kept_answer text)
    LANGUAGE plpgsql
    AS $$
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
    -- Nothing is kept under this scope, and one more would be too many.
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::bytea, NULL::integer, NULL::text;
    END IF;
END $$;


--
-- Name: run_is_possible(text, boolean, bigint, bigint, bigint, smallint, bigint, bigint, bigint, bigint, text, bigint, text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.run_is_possible(status text, holds boolean, seq bigint, epoch bigint, node bigint, ready smallint, ready_at bigint, wake_at bigint, started_at bigint, ended_at bigint, promised text, parent bigint, parent_call text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
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


--
-- Name: set_auto_approve(text, text, text); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.set_auto_approve(p_tenant text, p_thread text, p_by text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    the_thread bigint;
BEGIN
    UPDATE threads SET auto_approved_by = p_by WHERE tenant = p_tenant AND id = p_thread
    RETURNING thread INTO the_thread;
    IF the_thread IS NULL THEN
        RETURN false;
    END IF;
    -- Whoever gives leave has locked the thread before: what they gave is seen here.
    IF p_by IS NULL THEN
        UPDATE leave SET taken_back = true WHERE thread = the_thread AND NOT taken_back;
    END IF;
    RETURN true;
END $$;


--
-- Name: standing_of(bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.standing_of(p_node bigint, p_at bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    over_at bigint;
BEGIN
    SELECT expires_at INTO over_at FROM nodes WHERE node = p_node;
    RETURN CASE over_at > now_ms(p_at) WHEN true THEN 'held' WHEN false THEN 'lapsed' ELSE 'fenced' END;
END $$;


--
-- Name: still_stands(bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.still_stands(p_node bigint, p_at bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF standing_of(p_node, p_at) <> 'held' THEN
        RAISE EXCEPTION 'the lease of this node has run out' USING ERRCODE = 'HPL00';
    END IF;
END $$;


--
-- Name: submit(bigint, bigint, jsonb, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.submit(p_run bigint, p_change bigint, p_item jsonb, p_at bigint, OUT outcome text, OUT held_by bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    found_run record;
    the_ticket bigint;
BEGIN
    SELECT tenant, change, node INTO found_run FROM runs WHERE run = p_run FOR NO KEY UPDATE;
    IF NOT FOUND OR found_run.change <> p_change THEN
        outcome := 'again';
        RETURN;
    END IF;
    the_ticket := put(found_run.tenant, p_run, p_item, p_at);
    IF p_item ->> 'kind' IN ('decision', 'late_answer') THEN
        UPDATE suspensions SET answered_by = the_ticket
        WHERE run = p_run AND call = p_item ->> 'call' AND status = 'pending';
    END IF;
    outcome := 'taken';
    held_by := found_run.node;
END $$;


--
-- Name: take_over(bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.take_over(p_lease_ms bigint, p_at bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    gone bigint[];
    locked bigint[];
BEGIN
    DELETE FROM nodes WHERE node IN (
        SELECT node FROM nodes WHERE expires_at <= now_ms(p_at) ORDER BY node FOR UPDATE SKIP LOCKED
    );
    -- From holder to holder, without a look at each run. One that joined and claimed a moment ago is seen with both.
    WITH RECURSIVE holders AS (
        (SELECT node FROM runs WHERE node IS NOT NULL ORDER BY node LIMIT 1)
        UNION ALL
        SELECT (SELECT r.node FROM runs r WHERE r.node > h.node ORDER BY r.node LIMIT 1)
        FROM holders h WHERE h.node IS NOT NULL
    )
    SELECT array_agg(h.node) INTO gone FROM holders h
    WHERE h.node IS NOT NULL AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.node = h.node);
    -- What somebody is about to change is left for the next time: all others go on meanwhile.
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT run FROM runs WHERE node = ANY (gone) FOR NO KEY UPDATE SKIP LOCKED
    ) AS l;
    RETURN free_runs(locked, now_ms(p_at) + p_lease_ms, p_at);
END $$;


--
-- Name: take_ready(bigint, bigint, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.take_ready(p_run bigint, p_node bigint, p_due_at bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM 1 FROM runs WHERE run = p_run AND node IS NULL AND (ready <> 0 OR wake_at <= p_due_at)
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        PERFORM give(p_run, p_node);
        RETURN true;
    END IF;
    RETURN false;
END $$;


--
-- Name: write_beside(text, bigint, bigint, jsonb, bigint); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.write_beside(p_tenant text, p_thread bigint, p_run bigint, p_entry jsonb, p_at bigint, OUT woken text[], OUT rung_runs bigint[], OUT rung_nodes bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    one jsonb;
    target record;
BEGIN
    woken := '{}';
    rung_runs := '{}';
    rung_nodes := '{}';
    IF p_entry ?| '{messages,calls,leave,state}' THEN
        PERFORM write_thread(p_tenant, p_thread, p_run, p_entry);
    END IF;
    IF p_entry ?| '{suspensions,voided,consumed}' THEN
        PERFORM write_suspensions(p_tenant, p_run, p_entry);
    END IF;
    IF p_entry ? 'accepted' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'accepted') LOOP
            PERFORM remember(p_tenant, p_run, one);
        END LOOP;
    END IF;
    IF p_entry ? 'born' THEN
        woken := woken || bear(p_tenant, p_run, p_entry -> 'born', p_at);
    END IF;
    IF p_entry ? 'deliver' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'deliver') LOOP
            SELECT id, run, node, ended_at, interrupt_accepted INTO target FROM runs
            WHERE tenant = p_tenant AND id = one ->> 'to';
            -- Nobody is there, the run has ended, or it would hear a second interrupt.
            CONTINUE WHEN NOT FOUND OR target.ended_at IS NOT NULL
                OR (target.interrupt_accepted AND one ->> 'kind' = 'interrupt');
            PERFORM put(p_tenant, target.run, one, p_at);
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


--
-- Name: write_calls(text[], bigint[], bigint[], integer[], text[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.write_calls(p_tenants text[], p_threads bigint[], p_runs bigint[], p_places integer[], p_ids text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
        PERFORM impossible(format('the message of call %s is somebody else''s', taken));
    END IF;
END $$;


--
-- Name: write_messages(text[], bigint[], bigint[], integer[], integer[], text[], bigint[], text[]); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.write_messages(p_tenants text[], p_threads bigint[], p_runs bigint[], p_places integer[], p_nths integer[], p_ids text[], p_seqs bigint[], p_roles text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
        PERFORM impossible(format('message %s is somebody else''s', taken));
    END IF;
END $$;


--
-- Name: write_suspensions(text, bigint, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.write_suspensions(p_tenant text, p_run bigint, p_entry jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
                    -- A decision that came early answers the approval that it is for.
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
    -- A row that was heard and closed nothing answers nothing any more.
    IF p_entry ? 'consumed' THEN
        UPDATE suspensions SET answered_by = NULL
        WHERE run = p_run AND status = 'pending'
            AND answered_by IN (SELECT c::bigint FROM jsonb_array_elements_text(p_entry -> 'consumed') AS c);
    END IF;
END $$;


--
-- Name: write_thread(text, bigint, bigint, jsonb); Type: FUNCTION; Schema: holdpoint; Owner: -
--

CREATE FUNCTION holdpoint.write_thread(p_tenant text, p_thread bigint, p_run bigint, p_entry jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
    -- One after the other: a commit may put the same key twice, and the last one counts.
    IF p_entry ? 'leave' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'leave') LOOP
            INSERT INTO leave (tenant, thread, tool, given_by, definition)
            SELECT p_tenant, p_thread, l.tool, l.given_by, decode(l.definition, 'hex')
            FROM jsonb_to_record(one) AS l (tool text, given_by text, definition text)
            ON CONFLICT (thread, tool) DO UPDATE
            SET given_by = excluded.given_by, definition = excluded.definition, taken_back = false;
        END LOOP;
    END IF;
    IF p_entry ? 'state' THEN
        FOR one IN SELECT * FROM jsonb_array_elements(p_entry -> 'state') LOOP
            INSERT INTO plugin_state (tenant, thread, run, plugin, key, value)
            SELECT p_tenant, p_thread, CASE WHEN s.of_thread THEN 0 ELSE p_run END, s.plugin, s.key, s.value
            FROM jsonb_to_record(one) AS s (of_thread boolean, plugin text, key text, value text)
            ON CONFLICT (thread, run, plugin, key) DO UPDATE SET value = excluded.value;
        END LOOP;
    END IF;
END $$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: brought; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.brought (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    digest bytea NOT NULL,
    text text NOT NULL,
    CONSTRAINT brought_digest_check CHECK ((length(digest) = 32))
);


--
-- Name: call_ids; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.call_ids (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: callback_key; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.callback_key (
    the_only boolean NOT NULL,
    key bytea NOT NULL,
    CONSTRAINT callback_key_key_check CHECK ((length(key) = 32)),
    CONSTRAINT callback_key_the_only_check CHECK (the_only)
);


--
-- Name: commits; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
)
PARTITION BY HASH (run);


--
-- Name: commits_0; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_0 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_1; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_1 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_2; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_2 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_3; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_3 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_4; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_4 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_5; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_5 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_6; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_6 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: commits_7; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.commits_7 (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    checkpoint text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    CONSTRAINT commits_check CHECK (holdpoint.commit_is_possible(first_seq, last_seq, checkpoint))
);


--
-- Name: decisions; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.decisions (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    decision text NOT NULL
);


--
-- Name: inbox; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.inbox (
    ticket bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    call text COLLATE pg_catalog."C",
    arguments bytea,
    ends_run boolean DEFAULT false NOT NULL,
    item text NOT NULL,
    CONSTRAINT inbox_arguments_check CHECK (((arguments IS NULL) OR (length(arguments) = 32))),
    CONSTRAINT inbox_check CHECK (((kind = 'early'::text) = (call IS NOT NULL))),
    CONSTRAINT inbox_check1 CHECK (((kind = 'early'::text) = (arguments IS NOT NULL))),
    CONSTRAINT inbox_kind_check CHECK ((kind = ANY (ARRAY['decision'::text, 'early'::text, 'interrupt'::text, 'child_ended'::text, 'late_answer'::text])))
);


--
-- Name: inbox_ticket_seq; Type: SEQUENCE; Schema: holdpoint; Owner: -
--

ALTER TABLE holdpoint.inbox ALTER COLUMN ticket ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdpoint.inbox_ticket_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: leave; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.leave (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    tool text NOT NULL COLLATE pg_catalog."C",
    given_by text NOT NULL COLLATE pg_catalog."C",
    definition bytea NOT NULL,
    taken_back boolean DEFAULT false NOT NULL,
    CONSTRAINT leave_definition_check CHECK ((length(definition) = 32))
);


--
-- Name: messages; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.messages (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    seq bigint NOT NULL,
    role text NOT NULL COLLATE pg_catalog."C",
    place bigint NOT NULL,
    CONSTRAINT messages_check CHECK (holdpoint.message_is_possible(seq, role, place))
);


--
-- Name: migrations; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.migrations (
    version integer NOT NULL,
    applied_at timestamp with time zone NOT NULL
);


--
-- Name: nodes; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.nodes (
    node bigint NOT NULL,
    name text NOT NULL,
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT nodes_check CHECK ((expires_at >= started_at))
)
WITH (fillfactor='50');


--
-- Name: nodes_node_seq; Type: SEQUENCE; Schema: holdpoint; Owner: -
--

ALTER TABLE holdpoint.nodes ALTER COLUMN node ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdpoint.nodes_node_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: plugin_state; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.plugin_state (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    run bigint NOT NULL,
    plugin text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL
);


--
-- Name: post_keys; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.post_keys (
    tenant text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    scope text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT post_keys_body_check CHECK ((length(body) = 32))
);


--
-- Name: remembered; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.remembered (
    tenant text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    scope text NOT NULL COLLATE pg_catalog."C",
    body bytea NOT NULL,
    status integer NOT NULL,
    answer text NOT NULL,
    CONSTRAINT remembered_body_check CHECK ((length(body) = 32)),
    CONSTRAINT remembered_status_check CHECK ((status >= 0))
);


--
-- Name: revisions; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.revisions (
    digest bytea NOT NULL,
    text text NOT NULL,
    CONSTRAINT revisions_digest_check CHECK ((length(digest) = 32))
);


--
-- Name: runs; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.runs (
    run bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    thread bigint NOT NULL,
    agent text NOT NULL COLLATE pg_catalog."C",
    parent bigint,
    parent_call text COLLATE pg_catalog."C",
    begins_after text COLLATE pg_catalog."C",
    promised text COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    holds boolean NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    change bigint DEFAULT 0 NOT NULL,
    node bigint,
    doubt_at bigint,
    interrupt_accepted boolean DEFAULT false NOT NULL,
    in_doubt boolean NOT NULL,
    ready smallint NOT NULL,
    ready_at bigint,
    wake_at bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    control bytea NOT NULL,
    CONSTRAINT runs_check CHECK (holdpoint.run_is_possible(status, holds, seq, epoch, node, ready, ready_at, wake_at, started_at, ended_at, promised, parent, parent_call))
)
WITH (fillfactor='60');
ALTER TABLE ONLY holdpoint.runs ALTER COLUMN control SET STORAGE EXTERNAL;


--
-- Name: runs_run_seq; Type: SEQUENCE; Schema: holdpoint; Owner: -
--

ALTER TABLE holdpoint.runs ALTER COLUMN run ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdpoint.runs_run_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: suspensions; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.suspensions (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    seq bigint NOT NULL,
    closed_seq bigint,
    call text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    answered_by bigint,
    arguments bytea,
    created_at bigint NOT NULL,
    expires_at bigint,
    decided_at bigint,
    decided_by text COLLATE pg_catalog."C",
    reason text,
    note text,
    CONSTRAINT suspensions_arguments_check CHECK (((arguments IS NULL) OR (length(arguments) = 32))),
    CONSTRAINT suspensions_check CHECK ((closed_seq > seq)),
    CONSTRAINT suspensions_check1 CHECK (((status = 'pending'::text) = (decided_at IS NULL))),
    CONSTRAINT suspensions_check2 CHECK (((status = 'pending'::text) = (decided_by IS NULL))),
    CONSTRAINT suspensions_check3 CHECK (((status = 'pending'::text) = (closed_seq IS NULL))),
    CONSTRAINT suspensions_check4 CHECK (((status = 'pending'::text) OR (answered_by IS NULL))),
    CONSTRAINT suspensions_kind_check CHECK ((kind = ANY (ARRAY['approval'::text, 'client_tool'::text, 'external'::text, 'question'::text, 'in_doubt'::text, 'child_run'::text]))),
    CONSTRAINT suspensions_seq_check CHECK ((seq >= 1)),
    CONSTRAINT suspensions_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'approved'::text, 'rejected'::text, 'expired'::text, 'answered'::text])))
);


--
-- Name: threads; Type: TABLE; Schema: holdpoint; Owner: -
--

CREATE TABLE holdpoint.threads (
    thread bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    metadata json NOT NULL,
    auto_approved_by text COLLATE pg_catalog."C"
);


--
-- Name: suspensions_shown; Type: VIEW; Schema: holdpoint; Owner: -
--

CREATE VIEW holdpoint.suspensions_shown AS
 SELECT s.tenant,
    s.id,
    s.run,
    s.seq,
    s.closed_seq,
    s.call,
    s.kind,
    s.status,
    s.answered_by,
    s.arguments,
    s.created_at,
    s.expires_at,
    s.decided_at,
    s.decided_by,
    s.reason,
    s.note,
    ( SELECT i.item
           FROM holdpoint.inbox i
          WHERE (i.ticket = s.answered_by)) AS answer,
    r.id AS run_id,
    r.agent,
    t.id AS thread_id,
    c.first_seq,
    c.body,
    p.runs AS above_runs,
    p.agents AS above_agents,
    p.calls AS above_calls
   FROM ((((holdpoint.suspensions s
     JOIN holdpoint.runs r ON ((r.run = s.run)))
     JOIN holdpoint.threads t ON ((t.thread = r.thread)))
     CROSS JOIN LATERAL ( SELECT commits.first_seq,
            commits.body
           FROM holdpoint.commits
          WHERE ((commits.run = s.run) AND (commits.last_seq >= s.seq))
          ORDER BY commits.last_seq
         LIMIT 1) c)
     CROSS JOIN LATERAL ( WITH RECURSIVE above AS (
                 SELECT r.parent,
                    r.parent_call,
                    1 AS depth
                  WHERE (r.parent IS NOT NULL)
                UNION ALL
                 SELECT a_1.parent,
                    a_1.parent_call,
                    (above_1.depth + 1)
                   FROM (above above_1
                     JOIN holdpoint.runs a_1 ON ((a_1.run = above_1.parent)))
                  WHERE ((a_1.parent IS NOT NULL) AND (above_1.depth < 63))
                )
         SELECT COALESCE(array_agg(a.id ORDER BY above.depth DESC), '{}'::text[]) AS runs,
            COALESCE(array_agg(a.agent ORDER BY above.depth DESC), '{}'::text[]) AS agents,
            COALESCE(array_agg(above.parent_call ORDER BY above.depth DESC), '{}'::text[]) AS calls
           FROM (above
             JOIN holdpoint.runs a ON ((a.run = above.parent)))) p);


--
-- Name: threads_shown; Type: VIEW; Schema: holdpoint; Owner: -
--

CREATE VIEW holdpoint.threads_shown AS
 SELECT t.thread,
    t.tenant,
    t.id,
    t.created_at,
    t.metadata,
    t.auto_approved_by,
    ( SELECT m.id
           FROM holdpoint.messages m
          WHERE (m.thread = t.thread)
          ORDER BY m.place DESC
         LIMIT 1) AS head,
    f.id AS front,
    f.status AS front_status,
    f.in_doubt AS front_in_doubt,
    ( SELECT count(*) AS count
           FROM holdpoint.runs q
          WHERE ((q.thread = t.thread) AND (q.ended_at IS NULL) AND (NOT q.holds))) AS queued,
    ARRAY( SELECT l.tool
           FROM holdpoint.leave l
          WHERE ((l.thread = t.thread) AND (NOT l.taken_back))
          ORDER BY l.tool) AS approved_tools
   FROM (holdpoint.threads t
     LEFT JOIN LATERAL ( SELECT r.id,
            r.status,
            r.in_doubt
           FROM holdpoint.runs r
          WHERE ((r.thread = t.thread) AND (r.ended_at IS NULL))
          ORDER BY r.holds DESC, r.run
         LIMIT 1) f ON (true));


--
-- Name: threads_thread_seq; Type: SEQUENCE; Schema: holdpoint; Owner: -
--

ALTER TABLE holdpoint.threads ALTER COLUMN thread ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdpoint.threads_thread_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: commits_0; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_0 FOR VALUES WITH (modulus 8, remainder 0);


--
-- Name: commits_1; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_1 FOR VALUES WITH (modulus 8, remainder 1);


--
-- Name: commits_2; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_2 FOR VALUES WITH (modulus 8, remainder 2);


--
-- Name: commits_3; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_3 FOR VALUES WITH (modulus 8, remainder 3);


--
-- Name: commits_4; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_4 FOR VALUES WITH (modulus 8, remainder 4);


--
-- Name: commits_5; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_5 FOR VALUES WITH (modulus 8, remainder 5);


--
-- Name: commits_6; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_6 FOR VALUES WITH (modulus 8, remainder 6);


--
-- Name: commits_7; Type: TABLE ATTACH; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits ATTACH PARTITION holdpoint.commits_7 FOR VALUES WITH (modulus 8, remainder 7);


--
-- Data for Name: brought; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: call_ids; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.call_ids VALUES
	('default', 1, 'call_add'),
	('default', 1, 'call_add~2'),
	('default', 3, 'call_pay'),
	('default', 4, 'call_pay'),
	('default', 5, 'call_pay'),
	('default', 5, 'call_pay~2'),
	('default', 7, 'call_pay'),
	('default', 9, 'call_pay'),
	('default', 10, 'call_a'),
	('default', 10, 'call_b'),
	('default', 10, 'call_c'),
	('default', 12, 'call_ask'),
	('default', 13, 'call_pick'),
	('default', 14, 'call_order'),
	('default', 15, 'call_doubt'),
	('default', 16, 'call_clerk'),
	('default', 17, 'call_pay'),
	('default', 18, 'call_lost');


--
-- Data for Name: callback_key; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.callback_key VALUES
	(true, '\x54cede08577d8f22643b05b8819c973c62c795991d2814655d631ce4420dd1f8');


--
-- Data for Name: commits_0; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_0 VALUES
	('default', 1, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994339,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8862-71ba-862a-b4298b5aa5ba","thread_id":"thr_ended","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8862-7e23-bdc3-73182dc91b06","content":"add"}}}
{"v":1,"seq":2,"ts":1794857994339,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994339,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8862-7e23-bdc3-73182dc91b06"}}
{"v":1,"seq":4,"ts":1794857994339,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_1"}}'),
	('default', 1, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857994346,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_1","text":"Let me see.","calls":[{"call_id":"call_add","tool":"add"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994346,"step":1,"type":"tool.requested","payload":{"call_id":"call_add","tool":"add","arguments":{"valid":{"value":{"a":2,"b":3},"digest":"206f7b5543e6f2ef39bf334988fd7097b725caeed16588cd9d785480f2f0f8f6"}}}}
{"v":1,"seq":7,"ts":1794857994346,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_add","tool":"add","attempt":1,"class":"read","not_before":1794857994346}}'),
	('default', 1, 8, 11, 'tool_results', '{"v":1,"seq":8,"ts":1794857994349,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_add","result":5,"by":"tool"}}
{"v":1,"seq":9,"ts":1794857994349,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_add","call_id":"call_add","status":"succeeded","body":{"settled":{"seq":8}}}}
{"v":1,"seq":10,"ts":1794857994349,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_1"}}
{"v":1,"seq":11,"ts":1794857994349,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_2"}}'),
	('default', 1, 12, 14, 'run_finished', '{"v":1,"seq":12,"ts":1794857994350,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":13,"ts":1794857994350,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_2"}}
{"v":1,"seq":14,"ts":1794857994350,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}'),
	('default', 14, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995111,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8b67-76d1-8a29-27a3eb0351ea","thread_id":"thr_external","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8b67-74ef-8091-cd1a6cc014eb","content":"order"}}}
{"v":1,"seq":2,"ts":1794857995111,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995111,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8b67-74ef-8091-cd1a6cc014eb"}}
{"v":1,"seq":4,"ts":1794857995111,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8b67-76d1-8a29-27a3eb0351ea_1"}}'),
	('default', 14, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857995113,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8b67-76d1-8a29-27a3eb0351ea_1","text":"Let me see.","calls":[{"call_id":"call_order","tool":"order"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995113,"step":1,"type":"tool.requested","payload":{"call_id":"call_order","tool":"order","arguments":{"valid":{"value":{},"digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}}}
{"v":1,"seq":7,"ts":1794857995113,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_order","tool":"order","attempt":1,"class":"write","not_before":1794857995113}}'),
	('default', 14, 8, 9, 'waiting', '{"v":1,"seq":8,"ts":1794857995115,"step":1,"type":"tool.suspended","payload":{"call_id":"call_order","tool":"order","suspension_id":"sus_01a1e5df-8b6b-7001-bdab-d7e896c69988","held":"external","mode":"use_decision_as_tool_result","question":"When does it ship?","schema":{"properties":{"day":{"type":"string"}},"required":["day"],"type":"object"},"resume_state":{"order":17},"asked_by":[],"by_the_tool":true}}
{"v":1,"seq":9,"ts":1794857995115,"step":1,"type":"run.waiting","payload":{"on":"tool","pending":[{"call_id":"call_order","tool":"order","kind":"external","suspension_id":"sus_01a1e5df-8b6b-7001-bdab-d7e896c69988"}]}}'),
	('default', 16, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995236,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8be3-7e27-a82d-38048c41a05d","thread_id":"thr_parent","agent":"boss","revision":"155c190de1b3b8fc060cb4350a4f528c78a526e4bb12ea951038df40aecf0120","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8be3-7aa8-8d03-eb83eecfbc62","content":"delegate"}}}
{"v":1,"seq":2,"ts":1794857995236,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995236,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8be3-7aa8-8d03-eb83eecfbc62"}}
{"v":1,"seq":4,"ts":1794857995236,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8be3-7e27-a82d-38048c41a05d_1"}}'),
	('default', 16, 5, 10, 'waiting', '{"v":1,"seq":5,"ts":1794857995237,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8be3-7e27-a82d-38048c41a05d_1","text":"","calls":[{"call_id":"call_clerk","tool":"ask_clerk"}],"usage":{"input_tokens":0,"output_tokens":0},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995237,"step":1,"type":"tool.requested","payload":{"call_id":"call_clerk","tool":"ask_clerk","arguments":{"valid":{"value":{"message":"pay"},"digest":"689386828ddc3b72d431c3ebc554b92a1ac769e8834d822ccb7f83b542b9142a"}}}}
{"v":1,"seq":7,"ts":1794857995237,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_clerk","tool":"ask_clerk","attempt":1,"class":"write","not_before":1794857995237}}
{"v":1,"seq":8,"ts":1794857995237,"step":1,"type":"child.started","payload":{"call_id":"call_clerk","run_id":"run_01a1e5df-8be5-7f99-a720-fad586004b5e","thread_id":"thr_01a1e5df-8be5-711d-a350-b6f2c5da5ba3","agent":"clerk","depth":1}}
{"v":1,"seq":9,"ts":1794857995237,"step":1,"type":"tool.suspended","payload":{"call_id":"call_clerk","tool":"ask_clerk","suspension_id":"sus_01a1e5df-8be5-7001-8892-6ba58b6f57ca","held":{"child_run":{"run":"run_01a1e5df-8be5-7f99-a720-fad586004b5e","grant_tokens":null}},"mode":"use_decision_as_tool_result","asked_by":[]}}
{"v":1,"seq":10,"ts":1794857995237,"step":1,"type":"run.waiting","payload":{"on":"tool","pending":[{"call_id":"call_clerk","tool":"ask_clerk","kind":"child_run","suspension_id":"sus_01a1e5df-8be5-7001-8892-6ba58b6f57ca"}]}}');


--
-- Data for Name: commits_1; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_1 VALUES
	('default', 3, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994458,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-88da-7dfb-a817-8f817002ed2b","thread_id":"thr_rejected","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-88da-7a8b-8835-aaaccc7b006e","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994458,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994458,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-88da-7a8b-8835-aaaccc7b006e"}}
{"v":1,"seq":4,"ts":1794857994458,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-88da-7dfb-a817-8f817002ed2b_1"}}'),
	('default', 3, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857994459,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-88da-7dfb-a817-8f817002ed2b_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994459,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994459,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_pay","tool":"transfer","suspension_id":"apr_01a1e5df-88db-7001-a7d9-f6571baf7bba","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857994459,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_pay","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-88db-7001-a7d9-f6571baf7bba"}]}}'),
	('default', 3, 9, 13, 'run_finished', '{"v":1,"seq":9,"ts":1794857994520,"step":1,"type":"tool.denied","payload":{"call_id":"call_pay","approval_id":"apr_01a1e5df-88db-7001-a7d9-f6571baf7bba","by":"ann","reason":"too dear","expired":false}}
{"v":1,"seq":10,"ts":1794857994520,"step":1,"type":"run.resumed","payload":{}}
{"v":1,"seq":11,"ts":1794857994520,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay","call_id":"call_pay","status":"cancelled","body":{"settled":{"seq":9}}}}
{"v":1,"seq":12,"ts":1794857994520,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-88da-7dfb-a817-8f817002ed2b_1"}}
{"v":1,"seq":13,"ts":1794857994520,"step":null,"type":"run.ended","payload":{"termination":{"type":"stopped","value":{"code":"rejected","detail":"too dear"}},"usage":{"input_tokens":10,"output_tokens":5}}}'),
	('default', 11, 1, 1, 'user_message', '{"v":1,"seq":1,"ts":1794857994995,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8af3-76c7-a380-3b2b842a1125","thread_id":"thr_held","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8af3-7543-831c-0a2c5bf845f2","content":"add"}}}');


--
-- Data for Name: commits_2; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_2 VALUES
	('default', 2, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994402,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-88a2-7a9f-999e-0553d88034b5","thread_id":"thr_ended","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-88a2-73b5-b74f-235fd2620762","content":"add"}}}
{"v":1,"seq":2,"ts":1794857994402,"step":null,"type":"run.started","payload":{"after":"msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_2"}}
{"v":1,"seq":3,"ts":1794857994402,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-88a2-73b5-b74f-235fd2620762"}}
{"v":1,"seq":4,"ts":1794857994402,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_1"}}'),
	('default', 2, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857994406,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_1","text":"Let me see.","calls":[{"call_id":"call_add~2","tool":"add"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994406,"step":1,"type":"tool.requested","payload":{"call_id":"call_add~2","tool":"add","arguments":{"valid":{"value":{"a":2,"b":3},"digest":"206f7b5543e6f2ef39bf334988fd7097b725caeed16588cd9d785480f2f0f8f6"}}}}
{"v":1,"seq":7,"ts":1794857994406,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_add~2","tool":"add","attempt":1,"class":"read","not_before":1794857994406}}'),
	('default', 2, 8, 11, 'tool_results', '{"v":1,"seq":8,"ts":1794857994407,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_add~2","result":5,"by":"tool"}}
{"v":1,"seq":9,"ts":1794857994407,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_add~2","call_id":"call_add~2","status":"succeeded","body":{"settled":{"seq":8}}}}
{"v":1,"seq":10,"ts":1794857994407,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_1"}}
{"v":1,"seq":11,"ts":1794857994407,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_2"}}'),
	('default', 2, 12, 14, 'run_finished', '{"v":1,"seq":12,"ts":1794857994407,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":13,"ts":1794857994407,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_2"}}
{"v":1,"seq":14,"ts":1794857994407,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}');


--
-- Data for Name: commits_3; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_3 VALUES
	('default', 4, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994527,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-891f-7844-a2f1-4bde3edcd795","thread_id":"thr_denied","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-891f-79b8-ad94-12408eb29d03","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994527,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994527,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-891f-79b8-ad94-12408eb29d03"}}
{"v":1,"seq":4,"ts":1794857994527,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_1"}}'),
	('default', 4, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857994528,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994528,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994528,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_pay","tool":"transfer","suspension_id":"apr_01a1e5df-8920-7001-8d65-bd5e25ad9be5","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857994528,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_pay","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8920-7001-8d65-bd5e25ad9be5"}]}}'),
	('default', 4, 9, 13, 'replay_results', '{"v":1,"seq":9,"ts":1794857994584,"step":1,"type":"tool.denied","payload":{"call_id":"call_pay","approval_id":"apr_01a1e5df-8920-7001-8d65-bd5e25ad9be5","by":"ann","reason":"no","expired":false}}
{"v":1,"seq":10,"ts":1794857994584,"step":1,"type":"run.resumed","payload":{}}
{"v":1,"seq":11,"ts":1794857994584,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay","call_id":"call_pay","status":"cancelled","body":{"settled":{"seq":9}}}}
{"v":1,"seq":12,"ts":1794857994584,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_1"}}
{"v":1,"seq":13,"ts":1794857994584,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_2"}}'),
	('default', 4, 14, 16, 'run_finished', '{"v":1,"seq":14,"ts":1794857994585,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":15,"ts":1794857994585,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_2"}}
{"v":1,"seq":16,"ts":1794857994585,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}'),
	('default', 6, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994710,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-89d6-7d2e-9e99-259dcae169f7","thread_id":"thr_edited","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-89d6-736e-be3d-de28efb4f4ea","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994710,"step":null,"type":"run.started","payload":{"after":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_2"}}
{"v":1,"seq":3,"ts":1794857994710,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-89d6-736e-be3d-de28efb4f4ea"}}
{"v":1,"seq":4,"ts":1794857994710,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_1"}}'),
	('default', 6, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857994712,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_1","text":"Let me see.","calls":[{"call_id":"call_pay~2","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994712,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay~2","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994712,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_pay~2","tool":"transfer","attempt":1,"class":"write","not_before":1794857994712,"let_through_by":"ann"}}'),
	('default', 6, 8, 11, 'tool_results', '{"v":1,"seq":8,"ts":1794857994714,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_pay~2","result":{"sent":250},"by":"tool"}}
{"v":1,"seq":9,"ts":1794857994714,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay~2","call_id":"call_pay~2","status":"succeeded","body":{"settled":{"seq":8}}}}
{"v":1,"seq":10,"ts":1794857994714,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_1"}}
{"v":1,"seq":11,"ts":1794857994714,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_2"}}'),
	('default', 6, 12, 14, 'run_finished', '{"v":1,"seq":12,"ts":1794857994714,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":13,"ts":1794857994714,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_2"}}
{"v":1,"seq":14,"ts":1794857994714,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}'),
	('default', 15, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995166,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8b9e-7b25-bb72-9f0f3de08f9a","thread_id":"thr_doubt","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8b9e-7d61-833c-b113fe2b6763","content":"doubt"}}}
{"v":1,"seq":2,"ts":1794857995166,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995166,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8b9e-7d61-833c-b113fe2b6763"}}
{"v":1,"seq":4,"ts":1794857995166,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8b9e-7b25-bb72-9f0f3de08f9a_1"}}'),
	('default', 15, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857995169,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8b9e-7b25-bb72-9f0f3de08f9a_1","text":"Let me see.","calls":[{"call_id":"call_doubt","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995169,"step":1,"type":"tool.requested","payload":{"call_id":"call_doubt","tool":"transfer","arguments":{"valid":{"value":{"amount":9,"to":"doubt"},"digest":"a83eaf9250c097924074851caf63c1ab01bc55d6bc156b124a60a8633cf0bbd5"}}}}
{"v":1,"seq":7,"ts":1794857995169,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_doubt","tool":"transfer","suspension_id":"apr_01a1e5df-8ba1-7001-be23-89ca646ca34c","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":9,"to":"doubt"},"digest":"a83eaf9250c097924074851caf63c1ab01bc55d6bc156b124a60a8633cf0bbd5"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857995169,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_doubt","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8ba1-7001-be23-89ca646ca34c"}]}}'),
	('default', 15, 9, 11, 'replay_results', '{"v":1,"seq":9,"ts":1794857995227,"step":1,"type":"tool.approved","payload":{"call_id":"call_doubt","approval_id":"apr_01a1e5df-8ba1-7001-be23-89ca646ca34c","by":"ann","apply_to_future":false}}
{"v":1,"seq":10,"ts":1794857995227,"step":1,"type":"run.resumed","payload":{}}
{"v":1,"seq":11,"ts":1794857995227,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_doubt","tool":"transfer","attempt":1,"class":"write","not_before":1794857995227}}'),
	('default', 15, 12, 13, 'waiting', '{"v":1,"seq":12,"ts":1794857995231,"step":1,"type":"tool.suspended","payload":{"call_id":"call_doubt","tool":"transfer","suspension_id":"apr_01a1e5df-8bdf-7002-9ab5-2df61d8185fa","held":{"in_doubt":{"attempt":1}},"mode":"replay_tool_call","question":"the tool answered 503 Service Unavailable","asked_by":[]}}
{"v":1,"seq":13,"ts":1794857995231,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_doubt","tool":"transfer","kind":"in_doubt","suspension_id":"apr_01a1e5df-8bdf-7002-9ab5-2df61d8185fa"}]}}');


--
-- Data for Name: commits_4; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_4 VALUES
	('default', 12, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995000,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8af7-75e3-9eb5-80949a0633d2","thread_id":"thr_question","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8af7-7d6e-9d6f-3e392d823071","content":"ask"}}}
{"v":1,"seq":2,"ts":1794857995000,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995000,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8af7-7d6e-9d6f-3e392d823071"}}
{"v":1,"seq":4,"ts":1794857995000,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8af7-75e3-9eb5-80949a0633d2_1"}}'),
	('default', 12, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857995001,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8af7-75e3-9eb5-80949a0633d2_1","text":"Let me see.","calls":[{"call_id":"call_ask","tool":"ask_user"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995001,"step":1,"type":"tool.requested","payload":{"call_id":"call_ask","tool":"ask_user","arguments":{"valid":{"value":{"question":"Which account?"},"digest":"e18a9f7a1e49a10df4028bad774b9ba06b0a939654e0ad3a9b3230872051b15d"}}}}
{"v":1,"seq":7,"ts":1794857995001,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_ask","tool":"ask_user","attempt":1,"class":"read","not_before":1794857995001}}'),
	('default', 12, 8, 9, 'waiting', '{"v":1,"seq":8,"ts":1794857995002,"step":1,"type":"tool.suspended","payload":{"call_id":"call_ask","tool":"ask_user","suspension_id":"apr_01a1e5df-8afa-7001-8fd3-f46746217478","held":"question","mode":"use_decision_as_tool_result","question":"Which account?","asked_by":[],"by_the_tool":true}}
{"v":1,"seq":9,"ts":1794857995002,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_ask","tool":"ask_user","kind":"question","suspension_id":"apr_01a1e5df-8afa-7001-8fd3-f46746217478"}]}}'),
	('default', 17, 1, 1, 'user_message', '{"v":1,"seq":1,"ts":1794857995237,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8be5-7f99-a720-fad586004b5e","thread_id":"thr_01a1e5df-8be5-711d-a350-b6f2c5da5ba3","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_0","content":"pay"},"parent":{"run_id":"run_01a1e5df-8be3-7e27-a82d-38048c41a05d","call_id":"call_clerk","depth":1,"grant_tokens":null}}}'),
	('default', 17, 2, 4, 'user_message', '{"v":1,"seq":2,"ts":1794857995248,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995248,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_0"}}
{"v":1,"seq":4,"ts":1794857995248,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_1"}}'),
	('default', 17, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857995255,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995255,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857995255,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_pay","tool":"transfer","suspension_id":"apr_01a1e5df-8bf7-7001-b05b-6074a2b04f82","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857995255,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_pay","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8bf7-7001-b05b-6074a2b04f82"}]}}');


--
-- Data for Name: commits_5; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_5 VALUES
	('default', 5, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994594,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8962-709f-b88a-6395c8e17590","thread_id":"thr_edited","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8962-7a6e-86ff-df54bd96562b","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994594,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994594,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8962-7a6e-86ff-df54bd96562b"}}
{"v":1,"seq":4,"ts":1794857994594,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_1"}}'),
	('default', 5, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857994595,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994595,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994595,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_pay","tool":"transfer","suspension_id":"apr_01a1e5df-8963-7001-a584-4c0bf44eea81","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857994595,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_pay","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8963-7001-a584-4c0bf44eea81"}]}}'),
	('default', 5, 9, 11, 'replay_results', '{"v":1,"seq":9,"ts":1794857994650,"step":1,"type":"tool.approved","payload":{"call_id":"call_pay","approval_id":"apr_01a1e5df-8963-7001-a584-4c0bf44eea81","by":"ann","note":"less","arguments":{"valid":{"value":{"amount":7,"to":"bob"},"digest":"c2f6af9f66b68436dad821f3244eee6f0436eac9c38b80a9ffcb609ab66ce268"}},"apply_to_future":true}}
{"v":1,"seq":10,"ts":1794857994650,"step":1,"type":"run.resumed","payload":{}}
{"v":1,"seq":11,"ts":1794857994650,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_pay","tool":"transfer","attempt":1,"class":"write","not_before":1794857994650}}'),
	('default', 5, 12, 15, 'tool_results', '{"v":1,"seq":12,"ts":1794857994655,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_pay","result":{"sent":7},"by":"tool"}}
{"v":1,"seq":13,"ts":1794857994655,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay","call_id":"call_pay","status":"succeeded","body":{"settled":{"seq":12}}}}
{"v":1,"seq":14,"ts":1794857994655,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_1"}}
{"v":1,"seq":15,"ts":1794857994655,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_2"}}'),
	('default', 5, 16, 18, 'run_finished', '{"v":1,"seq":16,"ts":1794857994656,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":17,"ts":1794857994656,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_2"}}
{"v":1,"seq":18,"ts":1794857994656,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}'),
	('default', 8, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994821,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8a45-7e87-9ad0-543d64e88551","thread_id":"thr_failed","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8a45-7bf3-9643-40b1c8cacbab","content":"fail"}}}
{"v":1,"seq":2,"ts":1794857994821,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994821,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8a45-7bf3-9643-40b1c8cacbab"}}
{"v":1,"seq":4,"ts":1794857994821,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a45-7e87-9ad0-543d64e88551_1"}}'),
	('default', 8, 5, 6, 'run_finished', '{"v":1,"seq":5,"ts":1794857994823,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a45-7e87-9ad0-543d64e88551_1"}}
{"v":1,"seq":6,"ts":1794857994823,"step":null,"type":"run.ended","payload":{"termination":{"type":"error","value":{"code":"model","text":"400: no"}},"usage":{"input_tokens":0,"output_tokens":0}}}'),
	('default', 9, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994878,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8a7e-7228-b7c6-b0386417807e","thread_id":"thr_interrupted","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8a7e-7a3a-ad40-7ec7eca8ead0","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994878,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994878,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8a7e-7a3a-ad40-7ec7eca8ead0"}}
{"v":1,"seq":4,"ts":1794857994878,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a7e-7228-b7c6-b0386417807e_1"}}'),
	('default', 9, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857994882,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8a7e-7228-b7c6-b0386417807e_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994882,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994882,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_pay","tool":"transfer","suspension_id":"apr_01a1e5df-8a82-7001-92f1-538da79d1e1b","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857994882,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_pay","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8a82-7001-92f1-538da79d1e1b"}]}}'),
	('default', 9, 9, 13, 'run_finished', '{"v":1,"seq":9,"ts":1794857994935,"step":null,"type":"run.interrupting","payload":{"cause":{"person":"ann"}}}
{"v":1,"seq":10,"ts":1794857994935,"step":1,"type":"tool.cancelled","payload":{"call_id":"call_pay","reason":"interrupted","by":"system","outcome_unknown":false,"suspension_id":"apr_01a1e5df-8a82-7001-92f1-538da79d1e1b"}}
{"v":1,"seq":11,"ts":1794857994935,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay","call_id":"call_pay","status":"cancelled","body":{"settled":{"seq":10}}}}
{"v":1,"seq":12,"ts":1794857994935,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a7e-7228-b7c6-b0386417807e_1"}}
{"v":1,"seq":13,"ts":1794857994935,"step":null,"type":"run.ended","payload":{"termination":{"type":"cancelled","value":"interrupted"},"usage":{"input_tokens":10,"output_tokens":5}}}');


--
-- Data for Name: commits_6; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_6 VALUES
	('default', 13, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995055,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8b2f-7839-b8df-6fc9ddf2b0fe","thread_id":"thr_client","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8b2f-7da0-94e6-22fa89834306","content":"pick"}}}
{"v":1,"seq":2,"ts":1794857995055,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995055,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8b2f-7da0-94e6-22fa89834306"}}
{"v":1,"seq":4,"ts":1794857995055,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8b2f-7839-b8df-6fc9ddf2b0fe_1"}}'),
	('default', 13, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857995057,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8b2f-7839-b8df-6fc9ddf2b0fe_1","text":"Let me see.","calls":[{"call_id":"call_pick","tool":"pick_file"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995057,"step":1,"type":"tool.requested","payload":{"call_id":"call_pick","tool":"pick_file","arguments":{"valid":{"value":{},"digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}}}
{"v":1,"seq":7,"ts":1794857995057,"step":1,"type":"tool.suspended","payload":{"call_id":"call_pick","tool":"pick_file","suspension_id":"sus_01a1e5df-8b31-7001-992a-34ca823bd8c5","held":"client_tool","mode":"use_decision_as_tool_result","arguments":{"valid":{"value":{},"digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}},"asked_by":[]}}
{"v":1,"seq":8,"ts":1794857995057,"step":1,"type":"run.waiting","payload":{"on":"tool","pending":[{"call_id":"call_pick","tool":"pick_file","kind":"client_tool","suspension_id":"sus_01a1e5df-8b31-7001-992a-34ca823bd8c5"}]}}'),
	('default', 18, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857995302,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8c26-728e-bad7-0ad89d293f6b","thread_id":"thr_lost","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8c26-7b0d-8f31-9e931d518b6b","content":"lost"}}}
{"v":1,"seq":2,"ts":1794857995302,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857995302,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8c26-7b0d-8f31-9e931d518b6b"}}
{"v":1,"seq":4,"ts":1794857995302,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8c26-728e-bad7-0ad89d293f6b_1"}}'),
	('default', 18, 5, 8, 'waiting', '{"v":1,"seq":5,"ts":1794857995306,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8c26-728e-bad7-0ad89d293f6b_1","text":"Let me see.","calls":[{"call_id":"call_lost","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857995306,"step":1,"type":"tool.requested","payload":{"call_id":"call_lost","tool":"transfer","arguments":{"valid":{"value":{"amount":9,"to":"lost"},"digest":"b126cac09519fe3048696e7240db4d5bba76f42f664fda2dc7e90dc2e5192926"}}}}
{"v":1,"seq":7,"ts":1794857995306,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_lost","tool":"transfer","suspension_id":"apr_01a1e5df-8c2a-7001-a2ae-dfa6d6e2ca4a","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":9,"to":"lost"},"digest":"b126cac09519fe3048696e7240db4d5bba76f42f664fda2dc7e90dc2e5192926"}},"asked_by":["policy"]}}
{"v":1,"seq":8,"ts":1794857995306,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_lost","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8c2a-7001-a2ae-dfa6d6e2ca4a"}]}}'),
	('default', 18, 9, 11, 'replay_results', '{"v":1,"seq":9,"ts":1794857995364,"step":1,"type":"tool.approved","payload":{"call_id":"call_lost","approval_id":"apr_01a1e5df-8c2a-7001-a2ae-dfa6d6e2ca4a","by":"ann","apply_to_future":false}}
{"v":1,"seq":10,"ts":1794857995364,"step":1,"type":"run.resumed","payload":{}}
{"v":1,"seq":11,"ts":1794857995364,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_lost","tool":"transfer","attempt":1,"class":"write","not_before":1794857995364}}');


--
-- Data for Name: commits_7; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.commits_7 VALUES
	('default', 7, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994766,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd","thread_id":"thr_auto","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"never","while_waiting":"reject","on_busy":"reject"},"loosened_by":"ann","message":{"id":"msg_01a1e5df-8a0e-754d-be4f-70167be7b1db","content":"pay"}}}
{"v":1,"seq":2,"ts":1794857994766,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994766,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8a0e-754d-be4f-70167be7b1db"}}
{"v":1,"seq":4,"ts":1794857994766,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_1"}}'),
	('default', 7, 5, 7, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857994768,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_1","text":"Let me see.","calls":[{"call_id":"call_pay","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994768,"step":1,"type":"tool.requested","payload":{"call_id":"call_pay","tool":"transfer","arguments":{"valid":{"value":{"amount":250,"to":"bob"},"digest":"f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159"}}}}
{"v":1,"seq":7,"ts":1794857994768,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_pay","tool":"transfer","attempt":1,"class":"write","not_before":1794857994768,"let_through_by":"ann"}}'),
	('default', 7, 8, 11, 'tool_results', '{"v":1,"seq":8,"ts":1794857994769,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_pay","result":{"sent":250},"by":"tool"}}
{"v":1,"seq":9,"ts":1794857994769,"step":1,"type":"message.added","payload":{"role":"tool","id":"msg_call_pay","call_id":"call_pay","status":"succeeded","body":{"settled":{"seq":8}}}}
{"v":1,"seq":10,"ts":1794857994769,"step":1,"type":"step.ended","payload":{"step":1,"message_id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_1"}}
{"v":1,"seq":11,"ts":1794857994769,"step":2,"type":"step.started","payload":{"step":2,"message_id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_2"}}'),
	('default', 7, 12, 14, 'run_finished', '{"v":1,"seq":12,"ts":1794857994770,"step":2,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_2","text":"Done.","calls":[],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":13,"ts":1794857994770,"step":2,"type":"step.ended","payload":{"step":2,"message_id":"msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_2"}}
{"v":1,"seq":14,"ts":1794857994770,"step":null,"type":"run.ended","payload":{"termination":{"type":"natural_end"},"usage":{"input_tokens":20,"output_tokens":10}}}'),
	('default', 10, 1, 4, 'user_message', '{"v":1,"seq":1,"ts":1794857994940,"step":null,"type":"run.queued","payload":{"run_id":"run_01a1e5df-8abc-7af1-be5e-caa6979e1c0a","thread_id":"thr_held","agent":"clerk","revision":"17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507","policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"message":{"id":"msg_01a1e5df-8abc-7ba7-bdfb-0855c207e4d6","content":"two"}}}
{"v":1,"seq":2,"ts":1794857994940,"step":null,"type":"run.started","payload":{}}
{"v":1,"seq":3,"ts":1794857994940,"step":null,"type":"message.added","payload":{"role":"user","id":"msg_01a1e5df-8abc-7ba7-bdfb-0855c207e4d6"}}
{"v":1,"seq":4,"ts":1794857994940,"step":1,"type":"step.started","payload":{"step":1,"message_id":"msg_run_01a1e5df-8abc-7af1-be5e-caa6979e1c0a_1"}}'),
	('default', 10, 5, 11, 'assistant_turn', '{"v":1,"seq":5,"ts":1794857994941,"step":1,"type":"message.added","payload":{"role":"assistant","id":"msg_run_01a1e5df-8abc-7af1-be5e-caa6979e1c0a_1","text":"Let me see.","calls":[{"call_id":"call_a","tool":"transfer"},{"call_id":"call_b","tool":"add"},{"call_id":"call_c","tool":"transfer"}],"usage":{"input_tokens":10,"output_tokens":5},"matched":[]}}
{"v":1,"seq":6,"ts":1794857994941,"step":1,"type":"tool.requested","payload":{"call_id":"call_a","tool":"transfer","arguments":{"valid":{"value":{"amount":1,"to":"ann"},"digest":"91421f87599e7f641ebb4971b69bcb944349094852734021de5fc3b38cf0b937"}}}}
{"v":1,"seq":7,"ts":1794857994941,"step":1,"type":"tool.requested","payload":{"call_id":"call_b","tool":"add","arguments":{"valid":{"value":{"a":1,"b":1},"digest":"4dad51ac41eb73862fce375fae85ba13711fd19f1b26d8e4b1f9fa405c3d5adf"}}}}
{"v":1,"seq":8,"ts":1794857994941,"step":1,"type":"tool.requested","payload":{"call_id":"call_c","tool":"transfer","arguments":{"valid":{"value":{"amount":2,"to":"bob"},"digest":"52f81843e579b9352432c52d1bb791ad136d8f6c9fb65619285302be01e6c50a"}}}}
{"v":1,"seq":9,"ts":1794857994941,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_a","tool":"transfer","suspension_id":"apr_01a1e5df-8abd-7001-ba70-67b4e15482d5","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":1,"to":"ann"},"digest":"91421f87599e7f641ebb4971b69bcb944349094852734021de5fc3b38cf0b937"}},"asked_by":["policy"]}}
{"v":1,"seq":10,"ts":1794857994941,"step":1,"type":"tool.execution_started","payload":{"call_id":"call_b","tool":"add","attempt":1,"class":"read","not_before":1794857994941}}
{"v":1,"seq":11,"ts":1794857994941,"step":1,"type":"tool.approval_requested","payload":{"call_id":"call_c","tool":"transfer","suspension_id":"apr_01a1e5df-8abd-7002-845e-6769784ea18e","held":{"approval":{"definition":"afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885"}},"mode":"replay_tool_call","arguments":{"valid":{"value":{"amount":2,"to":"bob"},"digest":"52f81843e579b9352432c52d1bb791ad136d8f6c9fb65619285302be01e6c50a"}},"asked_by":["policy"]}}'),
	('default', 10, 12, 13, 'waiting', '{"v":1,"seq":12,"ts":1794857994943,"step":1,"type":"tool.execution_succeeded","payload":{"call_id":"call_b","result":2,"by":"tool"}}
{"v":1,"seq":13,"ts":1794857994943,"step":1,"type":"run.waiting","payload":{"on":"person","pending":[{"call_id":"call_a","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8abd-7001-ba70-67b4e15482d5"},{"call_id":"call_c","tool":"transfer","kind":"approval","suspension_id":"apr_01a1e5df-8abd-7002-845e-6769784ea18e"}]}}');


--
-- Data for Name: decisions; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: inbox; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: leave; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.leave VALUES
	('default', 5, 'transfer', 'ann', '\xafe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885', false);


--
-- Data for Name: messages; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.messages VALUES
	('default', 1, 'msg_01a1e5df-8862-7e23-bdc3-73182dc91b06', 1, 3, 'user', 1),
	('default', 1, 'msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_1', 1, 5, 'assistant', 2),
	('default', 1, 'msg_call_add', 1, 9, 'tool', 3),
	('default', 1, 'msg_run_01a1e5df-8862-71ba-862a-b4298b5aa5ba_2', 1, 12, 'assistant', 4),
	('default', 1, 'msg_01a1e5df-88a2-73b5-b74f-235fd2620762', 2, 3, 'user', 5),
	('default', 1, 'msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_1', 2, 5, 'assistant', 6),
	('default', 1, 'msg_call_add~2', 2, 9, 'tool', 7),
	('default', 1, 'msg_run_01a1e5df-88a2-7a9f-999e-0553d88034b5_2', 2, 12, 'assistant', 8),
	('default', 3, 'msg_01a1e5df-88da-7a8b-8835-aaaccc7b006e', 3, 3, 'user', 1),
	('default', 3, 'msg_run_01a1e5df-88da-7dfb-a817-8f817002ed2b_1', 3, 5, 'assistant', 2),
	('default', 3, 'msg_call_pay', 3, 11, 'tool', 3),
	('default', 4, 'msg_01a1e5df-891f-79b8-ad94-12408eb29d03', 4, 3, 'user', 1),
	('default', 4, 'msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_1', 4, 5, 'assistant', 2),
	('default', 4, 'msg_call_pay', 4, 11, 'tool', 3),
	('default', 4, 'msg_run_01a1e5df-891f-7844-a2f1-4bde3edcd795_2', 4, 14, 'assistant', 4),
	('default', 5, 'msg_01a1e5df-8962-7a6e-86ff-df54bd96562b', 5, 3, 'user', 1),
	('default', 5, 'msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_1', 5, 5, 'assistant', 2),
	('default', 5, 'msg_call_pay', 5, 13, 'tool', 3),
	('default', 5, 'msg_run_01a1e5df-8962-709f-b88a-6395c8e17590_2', 5, 16, 'assistant', 4),
	('default', 5, 'msg_01a1e5df-89d6-736e-be3d-de28efb4f4ea', 6, 3, 'user', 5),
	('default', 5, 'msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_1', 6, 5, 'assistant', 6),
	('default', 5, 'msg_call_pay~2', 6, 9, 'tool', 7),
	('default', 5, 'msg_run_01a1e5df-89d6-7d2e-9e99-259dcae169f7_2', 6, 12, 'assistant', 8),
	('default', 7, 'msg_01a1e5df-8a0e-754d-be4f-70167be7b1db', 7, 3, 'user', 1),
	('default', 7, 'msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_1', 7, 5, 'assistant', 2),
	('default', 7, 'msg_call_pay', 7, 9, 'tool', 3),
	('default', 7, 'msg_run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd_2', 7, 12, 'assistant', 4),
	('default', 8, 'msg_01a1e5df-8a45-7bf3-9643-40b1c8cacbab', 8, 3, 'user', 1),
	('default', 9, 'msg_01a1e5df-8a7e-7a3a-ad40-7ec7eca8ead0', 9, 3, 'user', 1),
	('default', 9, 'msg_run_01a1e5df-8a7e-7228-b7c6-b0386417807e_1', 9, 5, 'assistant', 2),
	('default', 9, 'msg_call_pay', 9, 11, 'tool', 3),
	('default', 10, 'msg_01a1e5df-8abc-7ba7-bdfb-0855c207e4d6', 10, 3, 'user', 1),
	('default', 10, 'msg_run_01a1e5df-8abc-7af1-be5e-caa6979e1c0a_1', 10, 5, 'assistant', 2),
	('default', 12, 'msg_01a1e5df-8af7-7d6e-9d6f-3e392d823071', 12, 3, 'user', 1),
	('default', 12, 'msg_run_01a1e5df-8af7-75e3-9eb5-80949a0633d2_1', 12, 5, 'assistant', 2),
	('default', 13, 'msg_01a1e5df-8b2f-7da0-94e6-22fa89834306', 13, 3, 'user', 1),
	('default', 13, 'msg_run_01a1e5df-8b2f-7839-b8df-6fc9ddf2b0fe_1', 13, 5, 'assistant', 2),
	('default', 14, 'msg_01a1e5df-8b67-74ef-8091-cd1a6cc014eb', 14, 3, 'user', 1),
	('default', 14, 'msg_run_01a1e5df-8b67-76d1-8a29-27a3eb0351ea_1', 14, 5, 'assistant', 2),
	('default', 15, 'msg_01a1e5df-8b9e-7d61-833c-b113fe2b6763', 15, 3, 'user', 1),
	('default', 15, 'msg_run_01a1e5df-8b9e-7b25-bb72-9f0f3de08f9a_1', 15, 5, 'assistant', 2),
	('default', 16, 'msg_01a1e5df-8be3-7aa8-8d03-eb83eecfbc62', 16, 3, 'user', 1),
	('default', 16, 'msg_run_01a1e5df-8be3-7e27-a82d-38048c41a05d_1', 16, 5, 'assistant', 2),
	('default', 17, 'msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_0', 17, 3, 'user', 1),
	('default', 17, 'msg_run_01a1e5df-8be5-7f99-a720-fad586004b5e_1', 17, 5, 'assistant', 2),
	('default', 18, 'msg_01a1e5df-8c26-7b0d-8f31-9e931d518b6b', 18, 3, 'user', 1),
	('default', 18, 'msg_run_01a1e5df-8c26-728e-bad7-0ad89d293f6b_1', 18, 5, 'assistant', 2);


--
-- Data for Name: migrations; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.migrations VALUES
	(1, '2026-11-16 19:39:54.307544+00'),
	(2, '2026-11-16 19:39:54.311922+00'),
	(3, '2026-11-16 19:39:54.314005+00'),
	(4, '2026-11-16 19:39:54.315415+00');


--
-- Data for Name: nodes; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.nodes OVERRIDING SYSTEM VALUE VALUES
	(1, 'process 4207', 1794857994328, 1794858004331);


--
-- Data for Name: plugin_state; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: post_keys; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: remembered; Type: TABLE DATA; Schema: holdpoint; Owner: -
--



--
-- Data for Name: revisions; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.revisions VALUES
	('\x155c190de1b3b8fc060cb4350a4f528c78a526e4bb12ea951038df40aecf0120', '{"agent":"boss","instructions":"You delegate.","model":"script","tools":[{"name":"ask_clerk","description":"Has the clerk do something","parameters":{"properties":{"message":{"description":"What is to be done","type":"string"}},"required":["message"],"type":"object"},"effect":"write","approval":"never","performer":{"agent":{"agent":"clerk","budget_tokens_max":null}},"expires_in_ms":null,"on_expiry":"deny"}],"plugins":[],"revision":{"policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"rules":[],"stop":[{"type":"max_rounds","rounds":25}],"phases":0,"limits":{"model_try_count_max":3,"tool_try_count_max":3,"backoff_ms":500,"model_backoff_ms_max":30000,"tool_backoff_ms_max":5000,"depth_max":4,"children_max":16}}}'),
	('\x17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507', '{"agent":"clerk","instructions":"You pay bills.","model":"script","tools":[{"name":"transfer","description":"Move money between two accounts","parameters":{"properties":{"amount":{"type":"number"},"to":{"type":"string"}},"required":["to","amount"],"type":"object"},"effect":"write","approval":"ask","performer":"server","expires_in_ms":null,"on_expiry":"deny"},{"name":"order","description":"Order an article","parameters":{"type":"object"},"effect":"write","approval":"never","performer":"server","expires_in_ms":null,"on_expiry":"deny"},{"name":"pick_file","description":"Let the user pick a file","parameters":{"type":"object"},"effect":"write","approval":"never","performer":"client","expires_in_ms":null,"on_expiry":"deny"},{"name":"add","description":"Adds two numbers.","parameters":{"additionalProperties":false,"properties":{"a":{"description":"The first number.","type":"number"},"b":{"description":"The second number.","type":"number"}},"required":["a","b"],"type":"object"},"effect":"read","approval":"never","performer":"server","expires_in_ms":null,"on_expiry":"deny"},{"name":"ask_user","description":"Asks the user a question and waits for the answer.","parameters":{"additionalProperties":false,"properties":{"question":{"description":"What the user is asked.","minLength":1,"type":"string"}},"required":["question"],"type":"object"},"effect":"read","approval":"never","performer":"server","expires_in_ms":null,"on_expiry":"deny"}],"plugins":[],"revision":{"policy":{"continuation":"all_settled","on_reject":null,"on_block":"fail_call","step_end":"after_tools","decisions":"immediate","execution":"parallel","approval":"policy","while_waiting":"reject","on_busy":"reject"},"rules":[],"stop":[{"type":"max_rounds","rounds":25}],"phases":0,"limits":{"model_try_count_max":3,"tool_try_count_max":3,"backoff_ms":500,"model_backoff_ms_max":30000,"tool_backoff_ms_max":5000,"depth_max":4,"children_max":16}}}');


--
-- Data for Name: runs; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.runs OVERRIDING SYSTEM VALUE VALUES
	(3, 'default', 'run_01a1e5df-88da-7dfb-a817-8f817002ed2b', 3, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 13, 2, 2, NULL, NULL, false, false, 0, NULL, NULL, 1794857994458, 1794857994458, 1794857994520, '\x012872756e5f30316131653564662d383864612d376466622d613831372d3866383137303032656432620c7468725f72656a656374656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383864612d376138622d383833352d616161636363376230303665000d9892feae9e340402000108746f6f206465617207010000000000000a050000019892feae9e34000301'),
	(1, 'default', 'run_01a1e5df-8862-71ba-862a-b4298b5aa5ba', 1, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 14, 1, 3, NULL, NULL, false, false, 0, NULL, NULL, 1794857994339, 1794857994339, 1794857994350, '\x012872756e5f30316131653564662d383836322d373162612d383632612d623432393862356161356261097468725f656e64656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383836322d376532332d626463332d373331383264633931623036000eee90feae9e340400070200000000000101ef107e9df6db1590ed90feae9e34140a00000bee90feae9e34000400'),
	(2, 'default', 'run_01a1e5df-88a2-7a9f-999e-0553d88034b5', 1, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 14, 1, 3, NULL, NULL, false, false, 0, NULL, NULL, 1794857994402, 1794857994402, 1794857994407, '\x012872756e5f30316131653564662d383861322d376139662d393939652d303535336438383033346235097468725f656e64656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383861322d373362352d623734662d323335666432363230373632012e6d73675f72756e5f30316131653564662d383836322d373162612d383632612d6234323938623561613562615f320ea791feae9e340400070200000000000101aa621004d923e530a791feae9e34140a000005a791feae9e34000400'),
	(4, 'default', 'run_01a1e5df-891f-7844-a2f1-4bde3edcd795', 4, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 16, 2, 3, NULL, NULL, false, false, 0, NULL, NULL, 1794857994527, 1794857994527, 1794857994585, '\x012872756e5f30316131653564662d383931662d373834342d613266312d3462646533656463643739350a7468725f64656e69656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383931662d373962382d616439342d3132343038656232396430330010d992feae9e340400070200000000000101a49edf17b4260877d892feae9e34140a000002d992feae9e34000401'),
	(5, 'default', 'run_01a1e5df-8962-709f-b88a-6395c8e17590', 5, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 18, 2, 4, NULL, NULL, false, false, 0, NULL, NULL, 1794857994594, 1794857994594, 1794857994656, '\x012872756e5f30316131653564662d383936322d373039662d623838612d3633393563386531373539300a7468725f65646974656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383936322d376136652d383666662d6466353462643936353632620012a093feae9e340400070200000000000101a49edf17b42608779f93feae9e34140a000007a093feae9e34000401'),
	(6, 'default', 'run_01a1e5df-89d6-7d2e-9e99-259dcae169f7', 5, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 14, 1, 3, NULL, NULL, false, false, 0, NULL, NULL, 1794857994710, 1794857994710, 1794857994714, '\x012872756e5f30316131653564662d383964362d376432652d396539392d3235396463616531363966370a7468725f65646974656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d383964362d373336652d626533642d646532386566623466346561012e6d73675f72756e5f30316131653564662d383936322d373039662d623838612d3633393563386531373539305f320eda93feae9e340400070200000000000101dde1186963ca5656da93feae9e34140a000004da93feae9e34000400'),
	(9, 'default', 'run_01a1e5df-8a7e-7228-b7c6-b0386417807e', 9, 'clerk', NULL, NULL, NULL, NULL, 'interrupted', false, 13, 2, 2, NULL, NULL, true, false, 0, NULL, NULL, 1794857994878, 1794857994878, 1794857994935, '\x012872756e5f30316131653564662d386137652d373232382d623763362d6230333836343137383037650f7468725f696e74657272757074656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386137652d376133612d616434302d376563376563613865616430000db795feae9e3404030007010000000000000a05000004b795feae9e34000301'),
	(7, 'default', 'run_01a1e5df-8a0e-7430-865c-6bfd6d1aa4cd', 7, 'clerk', NULL, NULL, NULL, NULL, 'completed', false, 14, 1, 3, NULL, NULL, false, false, 0, NULL, NULL, 1794857994766, 1794857994766, 1794857994770, '\x012872756e5f30316131653564662d386130652d373433302d383635632d366266643664316161346364087468725f6175746f05636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000000000103616e6e01286d73675f30316131653564662d386130652d373534642d626534662d373031363762653762316462000e9294feae9e340400070200000000000101a49edf17b42608779194feae9e34140a0000049294feae9e34000400'),
	(8, 'default', 'run_01a1e5df-8a45-7e87-9ad0-543d64e88551', 8, 'clerk', NULL, NULL, NULL, NULL, 'failed', false, 6, 1, 1, NULL, NULL, false, false, 0, NULL, NULL, 1794857994821, 1794857994821, 1794857994823, '\x012872756e5f30316131653564662d386134352d376538372d396164302d3534336436346538383535310a7468725f6661696c656405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386134352d376266332d393634332d3430623163386361636261620006c794feae9e34040500073430303a206e6f07010000000000000000000002c794feae9e34000100'),
	(10, 'default', 'run_01a1e5df-8abc-7af1-be5e-caa6979e1c0a', 10, 'clerk', NULL, NULL, NULL, NULL, 'waiting_approval', true, 13, 1, 2, NULL, NULL, false, false, 0, NULL, NULL, 1794857994940, 1794857994940, NULL, '\x012872756e5f30316131653564662d386162632d376166312d626535652d636161363937396531633061087468725f68656c6405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386162632d376261372d626466622d303835356332303765346436000dbf95feae9e340200030101000000030663616c6c5f6101087472616e7366657291421f87599e7f641ebb4971b69bcb944349094852734021de5fc3b38cf0b93706020001a1e5df8abd7001ba7067b4e15482d500afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab97588500000100090000000100010000000000000001000663616c6c5f6201036164644dad51ac41eb73862fce375fae85ba13711fd19f1b26d8e4b1f9fa405c3d5adf07040c0100010000000000000000000001000663616c6c5f6301087472616e7366657252f81843e579b9352432c52d1bb791ad136d8f6c9fb65619285302be01e6c50a08020001a1e5df8abd7002845e6769784ea18e00afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab975885000001000b000000010001000000000000000100000a05000003bf95feae9e34030995e0ed6820b82a32fc6195bbc8756f8f6e47f1ccd01cd5cfb1e093e321cc21be5bbc3d48f0d0b47fb54b8bc354203c0202'),
	(11, 'default', 'run_01a1e5df-8af3-76c7-a380-3b2b842a1125', 10, 'clerk', NULL, NULL, NULL, 'msg_01a1e5df-8af3-7543-831c-0a2c5bf845f2', 'queued', false, 1, 0, 0, NULL, NULL, false, false, 0, NULL, NULL, 1794857994995, NULL, NULL, '\x012872756e5f30316131653564662d386166332d373663372d613338302d336232623834326131313235087468725f68656c6405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386166332d373534332d383331632d3061326335626638343566320001f395feae9e340000000000000000000000000000f395feae9e34000000'),
	(12, 'default', 'run_01a1e5df-8af7-75e3-9eb5-80949a0633d2', 12, 'clerk', NULL, NULL, NULL, NULL, 'waiting_approval', true, 9, 1, 2, NULL, NULL, false, false, 0, NULL, NULL, 1794857995000, 1794857995000, NULL, '\x012872756e5f30316131653564662d386166372d373565332d396562352d3830393439613036333364320c7468725f7175657374696f6e05636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386166372d376436652d396436662d3365333932643832333037310009fa95feae9e340200030101000000010863616c6c5f61736b010861736b5f75736572e18a9f7a1e49a10df4028bad774b9ba06b0a939654e0ad3a9b3230872051b15d06020001a1e5df8afa70018fd3f46746217478030100000108010001000000010000000000000100000a05000002fa95feae9e3401a8d6a668dcaf327c5f138851f8aea35c0201'),
	(13, 'default', 'run_01a1e5df-8b2f-7839-b8df-6fc9ddf2b0fe', 13, 'clerk', NULL, NULL, NULL, NULL, 'waiting_tool', true, 8, 1, 1, NULL, NULL, false, false, 0, NULL, NULL, 1794857995055, 1794857995055, NULL, '\x012872756e5f30316131653564662d386232662d373833392d623864662d3666633964646632623066650a7468725f636c69656e7405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386232662d376461302d393465362d3232666138393833343330360008b196feae9e340201030101000000010963616c6c5f7069636b01097069636b5f66696c6544136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a06020101a1e5df8b317001992a34ca823bd8c50101000000070000000000000000000000000100000a05000002b196feae9e3401ca32226c5536108dd05ed345959b3edc0201'),
	(14, 'default', 'run_01a1e5df-8b67-76d1-8a29-27a3eb0351ea', 14, 'clerk', NULL, NULL, NULL, NULL, 'waiting_tool', true, 9, 1, 2, NULL, NULL, false, false, 0, NULL, NULL, 1794857995111, 1794857995111, NULL, '\x012872756e5f30316131653564662d386236372d373664312d386132392d3237613365623033353165610c7468725f65787465726e616c05636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386236372d373465662d383039312d6364316136636330313465620009eb96feae9e340201030101000000010a63616c6c5f6f7264657201056f7264657244136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a06020101a1e5df8b6b7001bdabd7e896c6998802010000010801000102000001000000000108000100000a05000004eb96feae9e340107b12bbc219dea2fb41d82859ed682f10201'),
	(15, 'default', 'run_01a1e5df-8b9e-7b25-bb72-9f0f3de08f9a', 15, 'clerk', NULL, NULL, NULL, NULL, 'waiting_approval', true, 13, 2, 3, NULL, NULL, false, true, 0, NULL, NULL, 1794857995166, 1794857995166, NULL, '\x012872756e5f30316131653564662d386239652d376232352d626237322d396630663364653038663961097468725f646f75627405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386239652d376436312d383333632d623131336665326236373633000ddf97feae9e340200030101000000010a63616c6c5f646f75627401087472616e73666572a83eaf9250c097924074851caf63c1ab01bc55d6bc156b124a60a8633cf0bbd506020001a1e5df8bdf70029ab52df61d8185fa0401000000000c0100010201000100010001a1e5df8ba17001be2389ca646ca34cafe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab9758850101000000000100000a05000007df97feae9e3401a1106018522f60b3c83fe97e3a2496c70202'),
	(16, 'default', 'run_01a1e5df-8be3-7e27-a82d-38048c41a05d', 16, 'boss', NULL, NULL, NULL, NULL, 'waiting_tool', true, 10, 1, 1, NULL, NULL, false, false, 0, NULL, NULL, 1794857995236, 1794857995236, NULL, '\x012872756e5f30316131653564662d386265332d376532372d613832642d3338303438633431613035640a7468725f706172656e7404626f7373155c190de1b3b8fc060cb4350a4f528c78a526e4bb12ea951038df40aecf0120000000000000000100000001286d73675f30316131653564662d386265332d376161382d386430332d656238336565636662633632000ae597feae9e340201030101000000010a63616c6c5f636c65726b010961736b5f636c65726b689386828ddc3b72d431c3ebc554b92a1ac769e8834d822ccb7f83b542b9142a06020101a1e5df8be5700188926ba58b6f57ca052872756e5f30316131653564662d386265352d376639392d613732302d666164353836303034623565000100000009010001020000000000000000000100000000000001e597feae9e34011f594278932a183f681758fae57e88f00201'),
	(17, 'default', 'run_01a1e5df-8be5-7f99-a720-fad586004b5e', 17, 'clerk', 16, 'call_clerk', NULL, NULL, 'waiting_approval', true, 8, 1, 2, NULL, NULL, false, false, 0, NULL, NULL, 1794857995237, 1794857995248, NULL, '\x012872756e5f30316131653564662d386265352d376639392d613732302d666164353836303034623565287468725f30316131653564662d386265352d373131642d613335302d62366632633564613562613305636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507012872756e5f30316131653564662d386265332d376532372d613832642d3338303438633431613035640a63616c6c5f636c65726b010000000000000001000000012e6d73675f72756e5f30316131653564662d386265352d376639392d613732302d6661643538363030346235655f300008f797feae9e340200030101000000010863616c6c5f70617901087472616e73666572f09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb15906020001a1e5df8bf77001b05b6074a2b04f8200afe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab9758850000010007000000010001000000000000000100000a05000007f797feae9e3401e0c289e9f7cc87e4f84e9f6d2d16fa9d0201'),
	(18, 'default', 'run_01a1e5df-8c26-728e-bad7-0ad89d293f6b', 18, 'clerk', NULL, NULL, NULL, NULL, 'running', true, 11, 2, 2, 1, NULL, false, false, 0, NULL, NULL, 1794857995302, 1794857995302, NULL, '\x012872756e5f30316131653564662d386332362d373238652d626164372d306164383964323933663662087468725f6c6f737405636c65726b17e0cd37cc75bcb6df01482fc4dab6f74eb66d3a6aa546409970550c47244507000000000000000100000001286d73675f30316131653564662d386332362d376230642d386633312d396539333164353138623662000be498feae9e3401030101000000010963616c6c5f6c6f737401087472616e73666572b126cac09519fe3048696e7240db4d5bba76f42f664fda2dc7e90dc2e5192926060101e498feae9e34000100010201000100010001a1e5df8c2a7001a2aedfa6d6e2ca4aafe73184c78c4f50c39cdb6702fb688b7ba3deeabe20577cc406ebd1ab97588500000000000000000a05000004e498feae9e34010edd9cf8237a1de767181c80bb7557990201');


--
-- Data for Name: suspensions; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.suspensions VALUES
	('default', 'apr_01a1e5df-88db-7001-a7d9-f6571baf7bba', 3, 7, 9, 'call_pay', 'approval', 'rejected', NULL, '\xf09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159', 1794857994459, NULL, 1794857994520, 'ann', 'too dear', NULL),
	('default', 'apr_01a1e5df-8920-7001-8d65-bd5e25ad9be5', 4, 7, 9, 'call_pay', 'approval', 'rejected', NULL, '\xf09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159', 1794857994528, NULL, 1794857994584, 'ann', 'no', NULL),
	('default', 'apr_01a1e5df-8963-7001-a584-4c0bf44eea81', 5, 7, 9, 'call_pay', 'approval', 'approved', NULL, '\xf09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159', 1794857994595, NULL, 1794857994650, 'ann', NULL, 'less'),
	('default', 'apr_01a1e5df-8a82-7001-92f1-538da79d1e1b', 9, 7, 10, 'call_pay', 'approval', 'rejected', NULL, '\xf09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159', 1794857994882, NULL, 1794857994935, 'system', 'interrupted', NULL),
	('default', 'apr_01a1e5df-8abd-7001-ba70-67b4e15482d5', 10, 9, NULL, 'call_a', 'approval', 'pending', NULL, '\x91421f87599e7f641ebb4971b69bcb944349094852734021de5fc3b38cf0b937', 1794857994941, NULL, NULL, NULL, NULL, NULL),
	('default', 'apr_01a1e5df-8abd-7002-845e-6769784ea18e', 10, 11, NULL, 'call_c', 'approval', 'pending', NULL, '\x52f81843e579b9352432c52d1bb791ad136d8f6c9fb65619285302be01e6c50a', 1794857994941, NULL, NULL, NULL, NULL, NULL),
	('default', 'apr_01a1e5df-8afa-7001-8fd3-f46746217478', 12, 8, NULL, 'call_ask', 'question', 'pending', NULL, NULL, 1794857995002, NULL, NULL, NULL, NULL, NULL),
	('default', 'sus_01a1e5df-8b31-7001-992a-34ca823bd8c5', 13, 7, NULL, 'call_pick', 'client_tool', 'pending', NULL, '\x44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 1794857995057, NULL, NULL, NULL, NULL, NULL),
	('default', 'sus_01a1e5df-8b6b-7001-bdab-d7e896c69988', 14, 8, NULL, 'call_order', 'external', 'pending', NULL, NULL, 1794857995115, NULL, NULL, NULL, NULL, NULL),
	('default', 'apr_01a1e5df-8ba1-7001-be23-89ca646ca34c', 15, 7, 9, 'call_doubt', 'approval', 'approved', NULL, '\xa83eaf9250c097924074851caf63c1ab01bc55d6bc156b124a60a8633cf0bbd5', 1794857995169, NULL, 1794857995227, 'ann', NULL, NULL),
	('default', 'apr_01a1e5df-8bdf-7002-9ab5-2df61d8185fa', 15, 12, NULL, 'call_doubt', 'in_doubt', 'pending', NULL, NULL, 1794857995231, NULL, NULL, NULL, NULL, NULL),
	('default', 'sus_01a1e5df-8be5-7001-8892-6ba58b6f57ca', 16, 9, NULL, 'call_clerk', 'child_run', 'pending', NULL, NULL, 1794857995237, NULL, NULL, NULL, NULL, NULL),
	('default', 'apr_01a1e5df-8bf7-7001-b05b-6074a2b04f82', 17, 7, NULL, 'call_pay', 'approval', 'pending', NULL, '\xf09d67e004f2efa94fb80df64fbf26fd0529e5769176aeb83478ed104cbbb159', 1794857995255, NULL, NULL, NULL, NULL, NULL),
	('default', 'apr_01a1e5df-8c2a-7001-a2ae-dfa6d6e2ca4a', 18, 7, 9, 'call_lost', 'approval', 'approved', NULL, '\xb126cac09519fe3048696e7240db4d5bba76f42f664fda2dc7e90dc2e5192926', 1794857995306, NULL, 1794857995364, 'ann', NULL, NULL);


--
-- Data for Name: threads; Type: TABLE DATA; Schema: holdpoint; Owner: -
--

INSERT INTO holdpoint.threads OVERRIDING SYSTEM VALUE VALUES
	(1, 'default', 'thr_ended', 1794857994335, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(3, 'default', 'thr_rejected', 1794857994457, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(4, 'default', 'thr_denied', 1794857994526, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(5, 'default', 'thr_edited', 1794857994593, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(7, 'default', 'thr_auto', 1794857994765, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(8, 'default', 'thr_failed', 1794857994821, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(9, 'default', 'thr_interrupted', 1794857994876, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(10, 'default', 'thr_held', 1794857994939, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(12, 'default', 'thr_question', 1794857994999, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(13, 'default', 'thr_client', 1794857995054, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(14, 'default', 'thr_external', 1794857995110, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(15, 'default', 'thr_doubt', 1794857995165, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(16, 'default', 'thr_parent', 1794857995235, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL),
	(17, 'default', 'thr_01a1e5df-8be5-711d-a350-b6f2c5da5ba3', 1794857995240, 'null', NULL),
	(18, 'default', 'thr_lost', 1794857995300, '{"for":"Grüße 🐎","n":[1,2.5,null,true]}', NULL);


--
-- Name: inbox_ticket_seq; Type: SEQUENCE SET; Schema: holdpoint; Owner: -
--

SELECT pg_catalog.setval('holdpoint.inbox_ticket_seq', 1, false);


--
-- Name: nodes_node_seq; Type: SEQUENCE SET; Schema: holdpoint; Owner: -
--

SELECT pg_catalog.setval('holdpoint.nodes_node_seq', 1, true);


--
-- Name: runs_run_seq; Type: SEQUENCE SET; Schema: holdpoint; Owner: -
--

SELECT pg_catalog.setval('holdpoint.runs_run_seq', 18, true);


--
-- Name: threads_thread_seq; Type: SEQUENCE SET; Schema: holdpoint; Owner: -
--

SELECT pg_catalog.setval('holdpoint.threads_thread_seq', 18, true);


--
-- Name: brought brought_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.brought
    ADD CONSTRAINT brought_pkey PRIMARY KEY (thread, digest);


--
-- Name: call_ids call_ids_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.call_ids
    ADD CONSTRAINT call_ids_pkey PRIMARY KEY (thread, id);


--
-- Name: callback_key callback_key_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.callback_key
    ADD CONSTRAINT callback_key_pkey PRIMARY KEY (the_only);


--
-- Name: commits commits_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits
    ADD CONSTRAINT commits_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_0 commits_0_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_0
    ADD CONSTRAINT commits_0_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_1 commits_1_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_1
    ADD CONSTRAINT commits_1_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_2 commits_2_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_2
    ADD CONSTRAINT commits_2_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_3 commits_3_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_3
    ADD CONSTRAINT commits_3_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_4 commits_4_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_4
    ADD CONSTRAINT commits_4_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_5 commits_5_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_5
    ADD CONSTRAINT commits_5_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_6 commits_6_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_6
    ADD CONSTRAINT commits_6_pkey PRIMARY KEY (run, last_seq);


--
-- Name: commits_7 commits_7_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.commits_7
    ADD CONSTRAINT commits_7_pkey PRIMARY KEY (run, last_seq);


--
-- Name: decisions decisions_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (run, id);


--
-- Name: inbox inbox_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (ticket);


--
-- Name: leave leave_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.leave
    ADD CONSTRAINT leave_pkey PRIMARY KEY (thread, tool);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (thread, id);


--
-- Name: messages messages_thread_place_key; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.messages
    ADD CONSTRAINT messages_thread_place_key UNIQUE (thread, place);


--
-- Name: migrations migrations_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);


--
-- Name: nodes nodes_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (node);


--
-- Name: plugin_state plugin_state_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.plugin_state
    ADD CONSTRAINT plugin_state_pkey PRIMARY KEY (thread, run, plugin, key);


--
-- Name: post_keys post_keys_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.post_keys
    ADD CONSTRAINT post_keys_pkey PRIMARY KEY (thread, scope);


--
-- Name: remembered remembered_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.remembered
    ADD CONSTRAINT remembered_pkey PRIMARY KEY (run, scope);


--
-- Name: revisions revisions_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.revisions
    ADD CONSTRAINT revisions_pkey PRIMARY KEY (digest);


--
-- Name: runs runs_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (run);


--
-- Name: runs runs_tenant_id_key; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.runs
    ADD CONSTRAINT runs_tenant_id_key UNIQUE (tenant, id);


--
-- Name: suspensions suspensions_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.suspensions
    ADD CONSTRAINT suspensions_pkey PRIMARY KEY (tenant, id);


--
-- Name: threads threads_pkey; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.threads
    ADD CONSTRAINT threads_pkey PRIMARY KEY (thread);


--
-- Name: threads threads_tenant_id_key; Type: CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.threads
    ADD CONSTRAINT threads_tenant_id_key UNIQUE (tenant, id);


--
-- Name: inbox_by_run; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX inbox_by_run ON holdpoint.inbox USING btree (run, ticket);


--
-- Name: inbox_ending; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX inbox_ending ON holdpoint.inbox USING btree (run) WHERE ends_run;


--
-- Name: inbox_one_early; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE UNIQUE INDEX inbox_one_early ON holdpoint.inbox USING btree (run, call) WHERE (kind = 'early'::text);


--
-- Name: runs_by_agent; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_by_agent ON holdpoint.runs USING btree (tenant, agent, ((status || ''::text)), created_at, id);


--
-- Name: runs_by_parent; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_by_parent ON holdpoint.runs USING btree (parent) WHERE (parent IS NOT NULL);


--
-- Name: runs_by_status; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_by_status ON holdpoint.runs USING btree (tenant, status, created_at, id);


--
-- Name: runs_by_thread; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_by_thread ON holdpoint.runs USING btree (thread, created_at, id);


--
-- Name: runs_due; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_due ON holdpoint.runs USING btree (wake_at, run) WHERE ((wake_at IS NOT NULL) AND (node IS NULL));


--
-- Name: runs_held; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_held ON holdpoint.runs USING btree (node, run) WHERE (node IS NOT NULL);


--
-- Name: runs_interrupting; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_interrupting ON holdpoint.runs USING btree (tenant, created_at, id) WHERE ((ended_at IS NULL) AND (interrupt_accepted OR (status = 'interrupting'::text)));


--
-- Name: runs_one_holder; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE UNIQUE INDEX runs_one_holder ON holdpoint.runs USING btree (thread) WHERE holds;


--
-- Name: runs_promised; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE UNIQUE INDEX runs_promised ON holdpoint.runs USING btree (thread, promised) WHERE (promised IS NOT NULL);


--
-- Name: runs_rung; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_rung ON holdpoint.runs USING btree (node) WHERE ((ready = 1) AND (node IS NOT NULL));


--
-- Name: runs_startable; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_startable ON holdpoint.runs USING btree (tenant, ready_at, run) WHERE ((ready = 2) AND (node IS NULL));


--
-- Name: runs_unended; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_unended ON holdpoint.runs USING btree (thread, run) WHERE (ended_at IS NULL);


--
-- Name: runs_woken; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX runs_woken ON holdpoint.runs USING btree (ready_at, run) WHERE ((ready = 1) AND (node IS NULL));


--
-- Name: suspensions_by_age; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX suspensions_by_age ON holdpoint.suspensions USING btree (tenant, status, created_at, id) WHERE (((status <> 'pending'::text) OR (answered_by IS NOT NULL)) AND (kind = ANY (ARRAY['approval'::text, 'question'::text, 'in_doubt'::text])));


--
-- Name: suspensions_by_run; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX suspensions_by_run ON holdpoint.suspensions USING btree (run, COALESCE(closed_seq, seq));


--
-- Name: suspensions_one_open; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE UNIQUE INDEX suspensions_one_open ON holdpoint.suspensions USING btree (run, call) WHERE (status = 'pending'::text);


--
-- Name: suspensions_pending; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX suspensions_pending ON holdpoint.suspensions USING btree (tenant, created_at, id) WHERE ((status = 'pending'::text) AND (answered_by IS NULL) AND (kind = ANY (ARRAY['approval'::text, 'question'::text, 'in_doubt'::text])));


--
-- Name: threads_by_age; Type: INDEX; Schema: holdpoint; Owner: -
--

CREATE INDEX threads_by_age ON holdpoint.threads USING btree (tenant, created_at, id);


--
-- Name: commits_0_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_0_pkey;


--
-- Name: commits_1_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_1_pkey;


--
-- Name: commits_2_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_2_pkey;


--
-- Name: commits_3_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_3_pkey;


--
-- Name: commits_4_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_4_pkey;


--
-- Name: commits_5_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_5_pkey;


--
-- Name: commits_6_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_6_pkey;


--
-- Name: commits_7_pkey; Type: INDEX ATTACH; Schema: holdpoint; Owner: -
--

ALTER INDEX holdpoint.commits_pkey ATTACH PARTITION holdpoint.commits_7_pkey;


--
-- Name: brought brought_thread_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.brought
    ADD CONSTRAINT brought_thread_fkey FOREIGN KEY (thread) REFERENCES holdpoint.threads(thread);


--
-- Name: decisions decisions_run_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.decisions
    ADD CONSTRAINT decisions_run_fkey FOREIGN KEY (run) REFERENCES holdpoint.runs(run);


--
-- Name: inbox inbox_run_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.inbox
    ADD CONSTRAINT inbox_run_fkey FOREIGN KEY (run) REFERENCES holdpoint.runs(run);


--
-- Name: leave leave_thread_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.leave
    ADD CONSTRAINT leave_thread_fkey FOREIGN KEY (thread) REFERENCES holdpoint.threads(thread);


--
-- Name: plugin_state plugin_state_thread_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.plugin_state
    ADD CONSTRAINT plugin_state_thread_fkey FOREIGN KEY (thread) REFERENCES holdpoint.threads(thread);


--
-- Name: post_keys post_keys_thread_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.post_keys
    ADD CONSTRAINT post_keys_thread_fkey FOREIGN KEY (thread) REFERENCES holdpoint.threads(thread);


--
-- Name: remembered remembered_run_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.remembered
    ADD CONSTRAINT remembered_run_fkey FOREIGN KEY (run) REFERENCES holdpoint.runs(run);


--
-- Name: suspensions suspensions_run_fkey; Type: FK CONSTRAINT; Schema: holdpoint; Owner: -
--

ALTER TABLE ONLY holdpoint.suspensions
    ADD CONSTRAINT suspensions_run_fkey FOREIGN KEY (run) REFERENCES holdpoint.runs(run);


--
-- PostgreSQL database dump complete
--


