-- The audit record. The content of a record has the canonical form of `machine::audit`: the names in order, and absent
-- fields left out.

CREATE FUNCTION audit_time(p_at bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT to_char(timestamp 'epoch' + p_at * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- Up to 100 names, as a JSON array.
CREATE FUNCTION audit_names(p_names text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '[' || coalesce(string_agg(to_json(n.name)::text, ',' ORDER BY n.nth), '') || ']'
    FROM unnest(p_names[1:100]) WITH ORDINALITY AS n (name, nth)
$$;

-- Adds a record, and returns its place. `p_actor` has `by`, and `via` and `address` if they are known; `p_detail` is
-- canonical JSON.
CREATE FUNCTION add_audit(
    p_tenant text, p_at bigint, p_action text, p_actor jsonb, p_thread text, p_detail text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    the_place bigint;
BEGIN
    INSERT INTO audit (tenant, at, action, actor, body) VALUES (
        p_tenant, p_at, p_action, p_actor ->> 'by',
        '{"action":' || to_json(p_action)
        || coalesce(',"address":' || to_json(p_actor ->> 'address'), '')
        || ',"at":"' || audit_time(p_at) || '"'
        || ',"by":' || to_json(p_actor ->> 'by')
        || ',"detail":' || p_detail
        || ',"tenant":' || to_json(p_tenant)
        || coalesce(',"thread_id":' || to_json(p_thread), '')
        || coalesce(',"via":' || to_json(p_actor ->> 'via'), '') || '}'
    ) RETURNING place INTO the_place;
    RETURN the_place;
END $$;

-- What a commit of a run records. The node has written the content.
CREATE FUNCTION write_audit(p_tenant text, p_entry jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (tenant, at, action, actor, body)
    SELECT p_tenant, a.at, a.action, a.actor, a.body
    FROM ROWS FROM (jsonb_to_recordset(p_entry -> 'audit') AS (at bigint, action text, actor text, body text))
        WITH ORDINALITY AS a (at, action, actor, body, nth)
    ORDER BY a.nth;
END $$;

-- Adds records of the configuration: `p_records` has the tenant, the number of its newest record that the node has read
-- (null: any), and the records. Returns false, and adds nothing, if a tenant has a newer one. Nodes that start together
-- wait for each other here.
CREATE FUNCTION record_configuration(p_records jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || '.configuration'));
    IF EXISTS (
        SELECT 1 FROM jsonb_to_recordset(p_records) AS r (tenant text, known bigint)
            JOIN audit a ON a.tenant = r.tenant AND a.action LIKE 'configuration.%'
        WHERE r.known IS NOT NULL AND (a.seq IS NULL OR a.seq > r.known)
    ) THEN
        RETURN false;
    END IF;
    PERFORM write_audit(r.value ->> 'tenant', r.value) FROM jsonb_array_elements(p_records) AS r;
    RETURN true;
END $$;

-- Locks the chain of a tenant, and returns its end. The lock shows what other nodes have sealed; a commit never waits
-- for it. `seq` is null if rows follow the stored head: then the chain cannot be continued.
CREATE FUNCTION lock_audit_chain(p_tenant text, OUT seq bigint, OUT hash bytea, OUT pruned_seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
    start CONSTANT bytea := decode(repeat('00', 32), 'hex');
    follows boolean;
BEGIN
    INSERT INTO audit_chains (tenant, seq, hash, pruned_seq, pruned_hash) VALUES (p_tenant, 0, start, 0, start)
    ON CONFLICT (tenant) DO NOTHING;
    SELECT c.seq, c.hash, c.pruned_seq INTO seq, hash, pruned_seq FROM audit_chains c WHERE c.tenant = p_tenant
    FOR NO KEY UPDATE;
    SELECT true INTO follows FROM audit a WHERE a.tenant = p_tenant AND a.seq > lock_audit_chain.seq LIMIT 1;
    IF follows THEN
        seq := NULL;
    END IF;
END $$;

-- Seals records, a bounded number. A tenant whose chain cannot be continued does not stop the others.
CREATE FUNCTION seal_audit(p_max bigint, OUT sealed bigint, OUT stopped text[]) LANGUAGE plpgsql AS $$
DECLARE
    the_tenant text;
    head record;
    one record;
BEGIN
    sealed := 0;
    stopped := '{}';
    FOR the_tenant IN SELECT DISTINCT a.tenant FROM audit a WHERE a.seq IS NULL ORDER BY a.tenant LOOP
        SELECT * INTO head FROM lock_audit_chain(the_tenant);
        IF head.seq IS NULL THEN
            stopped := stopped || the_tenant;
            CONTINUE;
        END IF;
        FOR one IN
            SELECT a.place, a.body FROM audit a WHERE a.tenant = the_tenant AND a.seq IS NULL
            ORDER BY a.place LIMIT p_max - sealed
        LOOP
            head.seq := head.seq + 1;
            head.hash := sha256(head.hash || convert_to(one.body, 'UTF8'));
            UPDATE audit SET seq = head.seq, hash = head.hash WHERE place = one.place;
            sealed := sealed + 1;
        END LOOP;
        UPDATE audit_chains SET seq = head.seq, hash = head.hash WHERE tenant = the_tenant;
    END LOOP;
END $$;

-- Whether a record says that everything before the first record was pruned. Otherwise another prune would cover up that
-- the beginning was removed.
CREATE FUNCTION audit_prune_is_recorded(p_tenant text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    chain record;
BEGIN
    SELECT c.pruned_seq, c.pruned_hash INTO chain FROM audit_chains c WHERE c.tenant = p_tenant;
    RETURN chain.pruned_seq = 0 OR EXISTS (
        SELECT 1 FROM audit a
        WHERE a.tenant = p_tenant AND a.seq > chain.pruned_seq AND a.action = 'audit.pruned' AND a.body LIKE
            '%"detail":{"through_hash":"' || encode(chain.pruned_hash, 'hex') || '","through_seq":'
            || chain.pruned_seq || '}%'
    );
END $$;

-- Deletes old records from the beginning of each chain, a bounded number, and records that. Returns how many. A chain
-- that cannot be continued is left as it is. The record is sealed at once: without it the chain would look as if its
-- beginning had been removed.
CREATE FUNCTION prune_audit(p_before bigint, p_max bigint, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    the_tenant text;
    head record;
    one record;
    through record;
    newest bigint;
    the_place bigint;
    gone bigint := 0;
BEGIN
    FOR the_tenant IN SELECT c.tenant FROM audit_chains c ORDER BY c.tenant LOOP
        SELECT * INTO head FROM lock_audit_chain(the_tenant);
        CONTINUE WHEN head.seq IS NULL OR NOT audit_prune_is_recorded(the_tenant);
        -- Changes of keys are found by comparing with the newest record of the configuration.
        SELECT max(a.seq) INTO newest FROM audit a WHERE a.tenant = the_tenant AND a.action LIKE 'configuration.%';
        through := NULL;
        FOR one IN
            SELECT a.seq, a.hash, a.at FROM audit a WHERE a.tenant = the_tenant AND a.seq > head.pruned_seq
            ORDER BY a.seq LIMIT p_max
        LOOP
            EXIT WHEN one.at >= p_before OR one.seq >= newest;
            through := one;
        END LOOP;
        CONTINUE WHEN through IS NULL;
        DELETE FROM audit WHERE tenant = the_tenant AND seq <= through.seq;
        the_place := add_audit(
            the_tenant, now_ms(p_at), 'audit.pruned', '{"by":"system"}', NULL,
            '{"through_hash":"' || encode(through.hash, 'hex') || '","through_seq":' || through.seq || '}'
        );
        UPDATE audit a SET seq = head.seq + 1, hash = sha256(head.hash || convert_to(a.body, 'UTF8'))
        WHERE a.place = the_place;
        UPDATE audit_chains c SET seq = a.seq, hash = a.hash, pruned_seq = through.seq, pruned_hash = through.hash
        FROM audit a WHERE c.tenant = the_tenant AND a.place = the_place;
        gone := gone + through.seq - head.pruned_seq;
    END LOOP;
    RETURN gone;
END $$;

-- Approvals of a thread that were decided, by id.
CREATE FUNCTION decided_approvals(p_thread bigint) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(s.id ORDER BY s.id), '{}') FROM runs r JOIN suspensions s ON s.run = r.run
        WHERE r.thread = p_thread AND s.status <> 'pending' AND s.kind IN ('approval', 'question', 'in_doubt')
    );
END $$;

-- Records that a thread is deleted. The record is what remains of it.
CREATE FUNCTION record_deleted_thread(p_thread bigint, p_action text, p_actor jsonb, p_at bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    thread_row record;
    approvals text[] := decided_approvals(p_thread);
    the_runs text[];
BEGIN
    SELECT tenant, id INTO thread_row FROM threads WHERE thread = p_thread;
    SELECT coalesce(array_agg(id ORDER BY id), '{}') INTO the_runs FROM runs WHERE thread = p_thread;
    PERFORM add_audit(
        thread_row.tenant, now_ms(p_at), p_action, p_actor, thread_row.id,
        '{"approval_count":' || cardinality(approvals) || ',"approvals":' || audit_names(approvals)
        || ',"run_count":' || cardinality(the_runs) || ',"runs":' || audit_names(the_runs) || '}'
    );
END $$;

CREATE FUNCTION record_revoked_grant(
    p_tenant text, p_thread text, p_id text, p_given_by text, p_tool text, p_actor jsonb, p_at bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_audit(
        p_tenant, now_ms(p_at), 'grant.revoked', p_actor, p_thread,
        -- A person and the key that acted for them are stored as one text, with the character 31 between them.
        '{"given_by":' || to_json(split_part(p_given_by, chr(31), 1))
        || coalesce(',"given_via":' || to_json(nullif(split_part(p_given_by, chr(31), 2), '')), '')
        || ',"grant_id":' || to_json(p_id)
        || coalesce(',"tool":' || to_json(p_tool), '') || '}'
    );
END $$;

-- Revokes a grant. Returns whether there was one.
CREATE FUNCTION revoke_grant(p_tenant text, p_id text, p_actor jsonb, p_at bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    grant_row record;
BEGIN
    DELETE FROM grants WHERE tenant = p_tenant AND id = p_id AND tool IS NULL AND NOT revoked
    RETURNING given_by, thread, tool INTO grant_row;
    IF NOT FOUND THEN
        UPDATE grants SET revoked = true WHERE tenant = p_tenant AND id = p_id AND tool IS NOT NULL AND NOT revoked
        RETURNING given_by, thread, tool INTO grant_row;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM record_revoked_grant(
        p_tenant, (SELECT t.id FROM threads t WHERE t.thread = grant_row.thread), p_id, grant_row.given_by,
        grant_row.tool, p_actor, p_at
    );
    RETURN true;
END $$;
