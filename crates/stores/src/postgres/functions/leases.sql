-- Which node holds which run: nodes and their leases, claims in order, releases and takeovers.
--
-- Nothing here waits for the disk. If a crash of the database loses a claim or a release, no commit of its worker came
-- after it: that commit's sync would have made it durable.

-- Registers a node.
CREATE FUNCTION join_nodes(p_name text, p_lease_ms bigint, p_at bigint, OUT joined bigint, OUT at_ms bigint)
LANGUAGE plpgsql AS $$
BEGIN
    at_ms := now_ms(p_at);
    INSERT INTO nodes (name, started_at, expires_at) VALUES (p_name, at_ms, at_ms + p_lease_ms)
    RETURNING node INTO joined;
END $$;

-- Frees locked runs. The next claim finds those that are ready; the others keep waiting.
CREATE FUNCTION free_runs(p_runs bigint[], p_doubt_at bigint, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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

-- Removes nodes whose lease has expired, permanently, and frees their runs. A call in doubt is shown to a person no
-- earlier than one lease time from now: by then the lost nodes can no longer send any request that was in flight.
CREATE FUNCTION take_over(p_lease_ms bigint, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint[];
    locked bigint[];
BEGIN
    DELETE FROM nodes WHERE node IN (
        SELECT node FROM nodes WHERE expires_at <= now_ms(p_at) ORDER BY node FOR UPDATE SKIP LOCKED
    );
    -- Skips from holder to holder in the index, without reading each run. For a node that has just joined and claimed,
    -- this statement sees both the node and its runs.
    WITH RECURSIVE holders AS (
        (SELECT node FROM runs WHERE node IS NOT NULL ORDER BY node LIMIT 1)
        UNION ALL
        SELECT (SELECT r.node FROM runs r WHERE r.node > h.node ORDER BY r.node LIMIT 1)
        FROM holders h WHERE h.node IS NOT NULL
    )
    SELECT array_agg(h.node) INTO gone FROM holders h
    WHERE h.node IS NOT NULL AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.node = h.node);
    -- Runs that another transaction is about to change are left for the next takeover, so that they block no other run.
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT run FROM runs WHERE node = ANY (gone) FOR NO KEY UPDATE SKIP LOCKED
    ) AS l;
    RETURN free_runs(locked, now_ms(p_at) + p_lease_ms, p_at);
END $$;

-- A node leaves voluntarily. It sends nothing more, so its runs need no waiting time.
CREATE FUNCTION hand_over(p_node bigint, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
BEGIN
    DELETE FROM nodes WHERE node = p_node;
    -- In lock order.
    SELECT array_agg(l.run) INTO locked FROM (
        SELECT run FROM runs WHERE node = p_node ORDER BY run FOR NO KEY UPDATE
    ) AS l;
    RETURN free_runs(locked, NULL, p_at);
END $$;

-- The data that a worker starts from, in the order in which the runs were claimed. PostgreSQL inlines this function
-- into the calling statement and plans both together.
CREATE FUNCTION loaded(p_runs bigint[]) RETURNS TABLE (
    run bigint, tenant text, id text, thread text, epoch bigint, holds boolean, begins_after text, doubt_at bigint,
    control bytea, tickets bigint[], items text[], version bigint, seq bigint, chain_from bigint, chain_head bytea, last_first_seq bigint,
    last_seq bigint, last_checkpoint text, last_body text, last_hash bytea, hash_before bytea
) LANGUAGE sql STABLE AS $$
    SELECT
        r.run, r.tenant, r.id, t.id, r.epoch, r.holds,
        coalesce(r.begins_after, (SELECT m.id FROM messages m WHERE m.thread = t.thread ORDER BY m.place DESC LIMIT 1)),
        r.doubt_at, r.control,
        ARRAY(SELECT i.ticket FROM inbox i WHERE i.run = r.run ORDER BY i.ticket),
        ARRAY(SELECT i.item FROM inbox i WHERE i.run = r.run ORDER BY i.ticket), r.version, r.seq, c.*
    FROM unnest(p_runs) WITH ORDINALITY AS p (run, place)
    JOIN runs r ON r.run = p.run JOIN threads t ON t.thread = r.thread
    CROSS JOIN LATERAL chain_end(r.run) AS c
    ORDER BY p.place
$$;

-- The data that the worker of a held run continues from. The run is locked first, to wait for a commit that is still in
-- flight because its answer was lost. The result of that commit is then included.
CREATE FUNCTION load_held(
    p_run bigint, p_tenant text, p_id text, p_node bigint, p_epoch bigint
) RETURNS TABLE (
    run bigint, tenant text, id text, thread text, epoch bigint, holds boolean, begins_after text, doubt_at bigint,
    control bytea, tickets bigint[], items text[], version bigint, seq bigint, chain_from bigint, chain_head bytea, last_first_seq bigint,
    last_seq bigint, last_checkpoint text, last_body text, last_hash bytea, hash_before bytea
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    PERFORM 1 FROM runs r
    WHERE r.run = p_run AND r.tenant = p_tenant AND r.id = p_id AND r.node = p_node AND r.epoch = p_epoch
    FOR NO KEY UPDATE;
    IF FOUND AND EXISTS (SELECT 1 FROM nodes n WHERE n.node = p_node) THEN
        RETURN QUERY SELECT * FROM loaded(ARRAY[p_run]);
    END IF;
END $$;

-- The leases of claimed runs, in the order of the claim. Volatile, so that it sees what the calling statement has
-- changed. The data that a worker starts from is read later: the claim must not wait until a large answer is sent.
CREATE FUNCTION assigned_runs(p_runs bigint[]) RETURNS TABLE (
    seq bigint, run bigint, tenant text, id text, thread text, epoch bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT r.seq, r.run, r.tenant, r.id, t.id, r.epoch
    FROM unnest(p_runs) WITH ORDINALITY AS p (run, place)
    JOIN runs r ON r.run = p.run JOIN threads t ON t.thread = r.thread
    ORDER BY p.place;
END $$;

-- Gives a locked run that no node holds to a node.
CREATE FUNCTION assign_run(p_run bigint, p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs SET node = p_node, epoch = epoch + 1, ready = 0, ready_at = NULL WHERE run = p_run;
END $$;

-- Claims one run by its id, and returns the data that its worker starts from in the same round trip. A long inbox is
-- left out, and so is a long last commit: the node reads both afterwards.
CREATE FUNCTION claim_run(
    p_node bigint, p_tenant text, p_id text, p_at bigint, OUT outcome text, OUT queued integer, OUT seq bigint,
    OUT run bigint, OUT tenant text, OUT id text, OUT thread text, OUT epoch bigint, OUT holds boolean,
    OUT begins_after text, OUT doubt_at bigint, OUT control bytea, OUT tickets bigint[], OUT items text[],
    OUT version bigint, OUT run_seq bigint, OUT chain_from bigint, OUT chain_head bytea, OUT last_first_seq bigint,
    OUT last_seq bigint, OUT last_checkpoint text, OUT last_body text, OUT last_hash bytea, OUT hash_before bytea
) LANGUAGE plpgsql AS $$
DECLARE
    its_thread bigint;
    byte_count bigint;
BEGIN
    queued := 0;
    outcome := lease_state(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    SET LOCAL synchronous_commit = off;
    UPDATE runs r SET node = p_node, epoch = r.epoch + 1, ready = 0, ready_at = NULL
    WHERE r.tenant = p_tenant AND r.id = p_id AND r.node IS NULL AND r.ended_at IS NULL
    RETURNING r.seq, r.run, r.tenant, r.id, r.epoch, r.holds, r.begins_after, r.doubt_at, r.control, r.version,
        r.thread
    INTO seq, run, tenant, id, epoch, holds, begins_after, doubt_at, control, version, its_thread;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM assert_lease_held(p_node, p_at);
    -- A separate statement, to see the rows as they are after waiting for the locks.
    SELECT t.id, coalesce(claim_run.begins_after, (
        SELECT m.id FROM messages m WHERE m.thread = t.thread ORDER BY m.place DESC LIMIT 1
    )) INTO thread, begins_after
    FROM threads t WHERE t.thread = its_thread;
    SELECT coalesce(array_agg(i.ticket ORDER BY i.ticket), '{}'), coalesce(array_agg(i.item ORDER BY i.ticket), '{}'),
        coalesce(sum(octet_length(i.item)), 0)
    INTO tickets, items, byte_count FROM inbox i WHERE i.run = claim_run.run;
    run_seq := seq;
    SELECT c.* INTO chain_from, chain_head, last_first_seq, last_seq, last_checkpoint, last_body, last_hash, hash_before
    FROM chain_end(claim_run.run) AS c;
    IF byte_count + coalesce(octet_length(last_body), 0) > 32768 THEN
        tickets := NULL;
        items := NULL;
        last_body := NULL;
    END IF;
END $$;

-- Takes the run if no other transaction has locked it and it is still ready or due.
CREATE FUNCTION take_ready(p_run bigint, p_node bigint, p_due_at bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM runs WHERE run = p_run AND node IS NULL AND (ready <> 0 OR wake_at <= p_due_at)
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        PERFORM assign_run(p_run, p_node);
        RETURN true;
    END IF;
    RETURN false;
END $$;

-- Claims runs that were woken, were interrupted, lost their worker or are due, in the order in which that happened.
-- With `p_pressing` only interrupted and due runs. Runs of the tenant `p_but` are skipped.
CREATE FUNCTION claim_woken(
    p_node bigint, p_limit integer, p_at bigint, p_pressing boolean, p_but text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    due_at bigint := now_ms(p_at);
    taken bigint[] := '{}';
    one record;
    seen_place bigint := -1;
    seen_run bigint := -1;
    tried integer;
BEGIN
    -- Other nodes may be about to claim all runs of a round. Then the next round looks at the runs after them.
    LOOP
        tried := 0;
        FOR one IN
            SELECT c.run, c.place FROM (
                -- Only one of the first two queries reads rows. Each has its own index.
                (SELECT run, ready_at AS place FROM runs
                WHERE NOT p_pressing AND ready = 1 AND node IS NULL AND (ready_at, run) > (seen_place, seen_run)
                    AND (p_but IS NULL OR tenant <> p_but)
                ORDER BY ready_at, run LIMIT p_limit)
                UNION ALL
                (SELECT run, ready_at FROM runs
                WHERE p_pressing AND ready = 1 AND node IS NULL AND interrupt_accepted
                    AND (ready_at, run) > (seen_place, seen_run) AND (p_but IS NULL OR tenant <> p_but)
                ORDER BY ready_at, run LIMIT p_limit)
                UNION ALL
                (SELECT run, wake_at * 1000 FROM runs
                WHERE node IS NULL AND wake_at <= due_at AND (p_but IS NULL OR tenant <> p_but)
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

-- Claims queued runs that hold their thread, one tenant after the other, beginning after the tenant that was served
-- last. Runs of the tenant `p_but` are skipped.
CREATE FUNCTION claim_startable(
    p_node bigint, p_limit integer, p_served text, p_but text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
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
            -- Start again with the first tenant, as long as a round finds a run.
            EXIT WHEN NOT found_in_round;
            found_in_round := false;
            the_tenant := NULL;
            CONTINUE;
        END IF;
        the_tenant := next_tenant;
        CONTINUE WHEN the_tenant = p_but;
        SELECT run INTO the_run FROM runs
        WHERE ready = 2 AND node IS NULL AND tenant = the_tenant
        ORDER BY ready_at, run LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM assign_run(the_run, p_node);
            taken := taken || the_run;
            found_in_round := true;
        END IF;
    END LOOP;
    RETURN taken;
END $$;

-- Claims up to `p_limit` runs: first woken and due ones, then queued ones. With `p_pressing` only interrupted and due
-- runs. `queued` is the number of queued runs, which are the last ones in `taken`.
CREATE FUNCTION claim_next(
    p_node bigint, p_limit integer, p_served text, p_at bigint, p_pressing boolean, p_not_woken text,
    p_not_startable text, OUT outcome text, OUT taken bigint[], OUT queued integer
) LANGUAGE plpgsql AS $$
DECLARE
    started bigint[];
BEGIN
    taken := '{}';
    queued := 0;
    outcome := lease_state(p_node, p_at);
    IF outcome <> 'held' THEN
        RETURN;
    END IF;
    SET LOCAL synchronous_commit = off;
    taken := claim_woken(p_node, p_limit, p_at, p_pressing, p_not_woken);
    IF cardinality(taken) < p_limit AND NOT p_pressing THEN
        started := claim_startable(p_node, p_limit - cardinality(taken), p_served, p_not_startable);
        queued := cardinality(started);
        taken := taken || started;
    END IF;
END $$;

-- Releases the run, unless its inbox has an item or its log is longer than `p_seq`. The latter means that a commit that
-- the worker gave up was stored late, and the worker has to load it. Without `p_seq` no worker is on the run, so it is
-- released in any case: the next node that claims it processes its inbox first. `waits` is true if the run is ready to
-- be claimed. A caller that has only the run's number passes no tenant and no id.
CREATE FUNCTION release(
    p_run bigint, p_tenant text, p_id text, p_node bigint, p_epoch bigint, p_seq bigint, p_at bigint,
    OUT outcome text, OUT waits boolean
) LANGUAGE plpgsql AS $$
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

-- Releases several runs, in lock order.
CREATE FUNCTION release_batch(
    p_runs bigint[], p_tenants text[], p_ids text[], p_node bigint, p_epochs bigint[], p_seqs bigint[], p_at bigint
) RETURNS TABLE (run bigint, outcome text, waits boolean) LANGUAGE plpgsql AS $$
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
