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

-- Adds a record. `p_actor` has `by`, and `via` and `address` if they are known; `p_detail` is canonical JSON.
CREATE FUNCTION add_audit(
    p_tenant text, p_at bigint, p_action text, p_actor jsonb, p_thread text, p_detail text
) RETURNS void LANGUAGE plpgsql AS $$
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
    );
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

-- Seals records, a bounded number, and returns how many. A node locks the chain first, so that it sees what other nodes
-- have sealed. A commit never waits for that lock.
CREATE FUNCTION seal_audit(p_max bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    start CONSTANT bytea := decode(repeat('00', 32), 'hex');
    the_tenant text;
    head record;
    one record;
    sealed bigint := 0;
BEGIN
    FOR the_tenant IN SELECT DISTINCT a.tenant FROM audit a WHERE a.seq IS NULL ORDER BY a.tenant LOOP
        EXIT WHEN sealed >= p_max;
        INSERT INTO audit_chains (tenant, seq, hash, pruned_seq, pruned_hash) VALUES (the_tenant, 0, start, 0, start)
        ON CONFLICT (tenant) DO NOTHING;
        SELECT c.seq, c.hash INTO head FROM audit_chains c WHERE c.tenant = the_tenant FOR NO KEY UPDATE;
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
    RETURN sealed;
END $$;

-- Deletes old records from the beginning of each chain, a bounded number, and records that. Returns how many.
CREATE FUNCTION prune_audit(p_before bigint, p_max bigint, p_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    the_tenant text;
    chain record;
    one record;
    through record;
    gone bigint := 0;
BEGIN
    FOR the_tenant IN SELECT c.tenant FROM audit_chains c ORDER BY c.tenant LOOP
        SELECT c.pruned_seq INTO chain FROM audit_chains c WHERE c.tenant = the_tenant FOR NO KEY UPDATE;
        through := NULL;
        FOR one IN
            SELECT a.seq, a.hash, a.at FROM audit a WHERE a.tenant = the_tenant AND a.seq > chain.pruned_seq
            ORDER BY a.seq LIMIT p_max
        LOOP
            EXIT WHEN one.at >= p_before;
            through := one;
        END LOOP;
        CONTINUE WHEN through IS NULL;
        DELETE FROM audit WHERE tenant = the_tenant AND seq <= through.seq;
        UPDATE audit_chains SET pruned_seq = through.seq, pruned_hash = through.hash WHERE tenant = the_tenant;
        PERFORM add_audit(
            the_tenant, now_ms(p_at), 'audit.pruned', '{"by":"system"}', NULL,
            '{"through_hash":"' || encode(through.hash, 'hex') || '","through_seq":' || through.seq || '}'
        );
        gone := gone + through.seq - chain.pruned_seq;
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
    PERFORM add_audit(
        p_tenant, now_ms(p_at), 'grant.revoked', p_actor, (SELECT t.id FROM threads t WHERE t.thread = grant_row.thread),
        -- A person and the key that acted for them are stored as one text, with the character 31 between them.
        '{"given_by":' || to_json(split_part(grant_row.given_by, chr(31), 1))
        || coalesce(',"given_via":' || to_json(nullif(split_part(grant_row.given_by, chr(31), 2), '')), '')
        || ',"grant_id":' || to_json(p_id)
        || coalesce(',"tool":' || to_json(grant_row.tool), '') || '}'
    );
    RETURN true;
END $$;
