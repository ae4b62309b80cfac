//! Faults that are planted one at a time into a healthy database, and the doctor's finding for each.

use stores::postgres::doctor::FindingCode;
use tokio_postgres::Client;

use crate::doctor::ExaminedStore;
use crate::nodes::Cluster;

const TABLES: [&str; 15] = [
    "threads",
    "runs",
    "commits",
    "inbox",
    "suspensions",
    "decisions",
    "messages",
    "call_ids",
    "grants",
    "plugin_state",
    "post_keys",
    "remembered",
    "brought",
    "audit",
    "audit_chains",
];

/// Plants faults past all constraints, and restores the tables afterwards.
struct FaultPlanter {
    client: Client,
    schema: String,
}

impl FaultPlanter {
    async fn new(cluster: &Cluster<'_>) -> Self {
        let client = cluster.client().await;
        let schema = cluster.schema.clone();
        client.batch_execute(&format!("CREATE SCHEMA {schema}_good")).await.unwrap();
        for table in TABLES.into_iter().chain(["revisions"]) {
            let copy = format!("CREATE TABLE {schema}_good.{table} AS TABLE {schema}.{table}");
            client.batch_execute(&copy).await.unwrap();
        }
        let free = "DO $$ DECLARE one record; BEGIN
            FOR one IN SELECT conrelid::regclass AS of, conname FROM pg_constraint
                WHERE connamespace = current_schema()::regnamespace AND contype = 'c' AND conparentid = 0 AND coninhcount = 0
            LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.of, one.conname); END LOOP;
        END $$;
        DROP INDEX runs_one_holder;
        ALTER TABLE messages DROP CONSTRAINT messages_thread_place_key;
        SET session_replication_role = replica";
        client.batch_execute(free).await.unwrap();
        Self { client, schema }
    }

    async fn plant(&self, sql: &str) {
        let changed = self.client.execute(sql, &[]).await.unwrap_or_else(|why| panic!("{sql}: {why:?}"));
        assert_ne!(changed, 0, "{sql} changes nothing");
    }

    async fn restore(&self) {
        for table in TABLES.into_iter().chain(["revisions"]) {
            let schema = &self.schema;
            let again = format!(
                "DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {schema}_good.{table}"
            );
            self.client.batch_execute(&again).await.unwrap();
        }
    }
}

#[tokio::test]
async fn each_planted_fault_is_found_where_it_is() {
    use FindingCode::{
        AuditBroken, CallDiffers, ChildLost, ControlDiffers, DecisionDiffers, InboxDiffers, LogBroken,
        MessageDiffers, Orphan, RevisionDiffers, RunDiffers, SuspensionDiffers, ThreadDiffers, Unreadable,
    };
    let fixture = ExaminedStore::populated().await;
    let planter = FaultPlanter::new(&fixture.cluster).await;
    fixture.assert_healthy().await;
    let faults: [(&str, FindingCode, &str); 76] = [
        // The audit record.
        (
            "UPDATE audit SET body = replace(body, '\"by\":\"ana\"', '\"by\":\"bob\"') WHERE seq = 1",
            AuditBroken,
            "audit record 1",
        ),
        ("UPDATE audit SET actor = 'bob' WHERE seq = 2", AuditBroken, "audit record 2 of tenant acme"),
        ("DELETE FROM audit WHERE seq = 2", AuditBroken, "record 2 should be here"),
        ("DELETE FROM audit WHERE seq = 3", AuditBroken, "the stored head is 3"),
        ("UPDATE audit SET seq = 9 WHERE seq = 3", AuditBroken, "record 3 should be here"),
        ("DELETE FROM audit_chains", AuditBroken, "the stored head is 0"),
        // The stored state.
        (
            "UPDATE runs SET control = (SELECT control FROM runs WHERE id = 'behind') WHERE id = 'waits'",
            ControlDiffers,
            "run waits",
        ),
        (
            "UPDATE runs SET control = substr(control, 1, length(control) - 1) WHERE id = 'ended'",
            ControlDiffers,
            "run ended",
        ),
        // The log.
        (
            "DELETE FROM commits WHERE run = (SELECT run FROM runs WHERE id = 'ended') AND first_seq > 1 AND checkpoint <> 'run_finished'",
            LogBroken,
            "run ended",
        ),
        (
            "DELETE FROM commits WHERE run = (SELECT run FROM runs WHERE id = 'ended') AND checkpoint = 'run_finished'",
            RunDiffers,
            "run ended",
        ),
        (
            "DELETE FROM commits WHERE run = (SELECT run FROM runs WHERE id = 'behind')",
            LogBroken,
            "it has no events",
        ),
        (
            "UPDATE commits SET body = substr(body, strpos(body, E'\\n') + 1) WHERE run = (SELECT run FROM runs WHERE id = 'ended') AND first_seq > 1",
            LogBroken,
            "run ended",
        ),
        (
            "UPDATE commits SET body = replace(body, '\"type\":\"run.started\"', '\"type\":\"run.paused\"')",
            Unreadable,
            "event 2",
        ),
        (
            "UPDATE commits SET body = replace(body, '\"v\":1', '\"v\":9') WHERE first_seq = 1",
            Unreadable,
            "version 9",
        ),
        (
            "UPDATE commits SET body = replace(body, '{\"of\":\"no\"}', '{\"of\":\"me\"}')",
            LogBroken,
            "digest",
        ),
        ("UPDATE commits SET checkpoint = 'waiting' WHERE first_seq = 1", LogBroken, "user_message"),
        ("UPDATE commits SET tenant = 'thief' WHERE first_seq = 1", LogBroken, "thief"),
        // The row of a run.
        ("UPDATE runs SET status = 'failed' WHERE id = 'ended'", RunDiffers, "status is \"failed\""),
        ("UPDATE runs SET agent = 'other' WHERE id = 'waits'", RunDiffers, "agent is \"other\""),
        ("UPDATE runs SET seq = seq + 1 WHERE id = 'waits'", RunDiffers, "seq is"),
        ("UPDATE runs SET wake_at = NULL WHERE wake_at IS NOT NULL", RunDiffers, "wake_at is nothing"),
        ("UPDATE runs SET in_doubt = false WHERE id = 'lost'", RunDiffers, "in_doubt is 0"),
        ("UPDATE runs SET epoch = 0 WHERE id = 'lost'", RunDiffers, "epoch 0"),
        ("UPDATE runs SET promised = NULL WHERE id = 'behind'", RunDiffers, "promised is nothing"),
        ("UPDATE runs SET ended_at = NULL WHERE id = 'ended'", RunDiffers, "ended_at is nothing"),
        ("UPDATE runs SET tenant = 'thief' WHERE id = 'ended'", RunDiffers, "tenant is \"thief\""),
        (
            "UPDATE runs SET parent = (SELECT run FROM runs WHERE id = 'ended') WHERE parent IS NOT NULL",
            RunDiffers,
            "its parent is ended",
        ),
        (
            "UPDATE runs SET thread = (SELECT thread FROM threads WHERE id = 'thr_early') WHERE id = 'ended'",
            RunDiffers,
            "on thread thr_ended",
        ),
        // Suspensions and approvals.
        (
            "UPDATE suspensions SET status = 'approved' WHERE status = 'rejected'",
            SuspensionDiffers,
            "status is \"approved\", the log says \"rejected\"",
        ),
        (
            "UPDATE suspensions SET closed_seq = closed_seq + 1 WHERE status = 'rejected'",
            SuspensionDiffers,
            "closed_seq is",
        ),
        (
            "UPDATE suspensions SET decided_by = 'eve' WHERE decided_by = 'ana'",
            SuspensionDiffers,
            "decided_by is \"eve\"",
        ),
        (
            "UPDATE suspensions SET arguments = decode(repeat('00', 32), 'hex') WHERE call = 'call_waits'",
            SuspensionDiffers,
            "arguments is",
        ),
        (
            "UPDATE suspensions SET expires_at = 5 WHERE kind = 'in_doubt'",
            SuspensionDiffers,
            "expires_at is 5",
        ),
        (
            "UPDATE suspensions SET answered_by = 4711 WHERE call = 'call_decided'",
            SuspensionDiffers,
            "row 4711",
        ),
        ("DELETE FROM suspensions WHERE call = 'call_waits'", SuspensionDiffers, "has no row"),
        (
            "UPDATE suspensions SET id = 'sus_more' WHERE call = 'call_waits' AND tenant = 'acme'",
            SuspensionDiffers,
            "sus_more is not in the log",
        ),
        // Messages, calls, and what else a thread keeps.
        ("UPDATE messages SET role = 'user' WHERE role = 'tool'", MessageDiffers, "role is \"user\""),
        ("UPDATE messages SET seq = seq + 1 WHERE id = 'msg_user_waits'", MessageDiffers, "msg_user_waits"),
        ("UPDATE messages SET tenant = 'thief' WHERE id = 'msg_user_waits'", MessageDiffers, "thief"),
        (
            "UPDATE messages SET run = 4711 WHERE id = 'msg_user_waits'",
            MessageDiffers,
            "run is 4711",
        ),
        ("DELETE FROM messages WHERE id = 'msg_user_ended'", MessageDiffers, "has no row"),
        (
            "INSERT INTO messages SELECT tenant, thread, 'msg_more', run, seq, role, 99 FROM messages LIMIT 1",
            MessageDiffers,
            "rows",
        ),
        (
            "UPDATE messages SET place = place + 100 WHERE id = 'msg_user_ended'",
            MessageDiffers,
            "order of the logs",
        ),
        (
            "UPDATE messages m SET place = CASE place WHEN 2 THEN 3 ELSE 2 END FROM threads t
                WHERE t.thread = m.thread AND t.id = 'thr_ended' AND m.place IN (2, 3)",
            MessageDiffers,
            "order of the logs",
        ),
        ("UPDATE call_ids SET id = 'nay' WHERE id = 'no'", CallDiffers, "call no"),
        ("UPDATE call_ids SET tenant = 'thief' WHERE id = 'no'", CallDiffers, "call no belongs to thief"),
        ("INSERT INTO call_ids SELECT tenant, thread, 'more' FROM call_ids LIMIT 1", CallDiffers, "rows"),
        ("UPDATE grants SET given_by = 'eve'", ThreadDiffers, "given by eve"),
        ("UPDATE grants SET reasons = '[\"tool\",{\"agent\":\"all_tools\"}]'", ThreadDiffers, "is not what the logs say"),
        ("UPDATE grants SET agent = NULL", ThreadDiffers, "is not what the logs say"),
        ("UPDATE grants SET tenant = 'thief'", ThreadDiffers, "is not what the logs say"),
        ("DELETE FROM grants", ThreadDiffers, "has no row"),
        ("UPDATE plugin_state SET value = '1' WHERE key = 'ours'", ThreadDiffers, "state ours"),
        ("UPDATE plugin_state SET run = 0 WHERE key = 'mine'", ThreadDiffers, "state mine"),
        ("DELETE FROM plugin_state WHERE key = 'mine'", ThreadDiffers, "state mine of plugin guard has no row"),
        (
            "UPDATE runs SET holds = false WHERE id = 'waits' AND tenant = 'acme'",
            ThreadDiffers,
            "0 of them hold it",
        ),
        ("UPDATE runs SET holds = true WHERE id = 'behind'", ThreadDiffers, "2 of them hold it"),
        ("UPDATE post_keys SET run = 4711", Orphan, "a run that does not exist"),
        (
            "UPDATE post_keys SET run = (SELECT run FROM runs WHERE id = 'ended')",
            ThreadDiffers,
            "a run of another thread",
        ),
        ("UPDATE post_keys SET tenant = 'thief'", ThreadDiffers, "belongs to another tenant"),
        ("UPDATE remembered SET tenant = 'thief'", DecisionDiffers, "belongs to another tenant"),
        // Accepted items and decisions.
        ("DELETE FROM decisions WHERE id = 'd1'", DecisionDiffers, "d1"),
        ("UPDATE decisions SET tenant = 'thief'", DecisionDiffers, "of thief holds"),
        ("UPDATE decisions SET decision = 'no'", Unreadable, "decision d"),
        (
            "UPDATE runs SET ready = 0, ready_at = NULL, node = NULL WHERE id = 'decided'",
            InboxDiffers,
            "no worker has been notified",
        ),
        ("UPDATE inbox SET item = '{}'", Unreadable, "inbox row"),
        (
            "INSERT INTO inbox (tenant, run, kind, item)
                SELECT 'acme', run, 'interrupt', '{\"interrupt\":{\"cause\":{\"person\":\"bob\"}}}' FROM runs WHERE id = 'ended'",
            InboxDiffers,
            "it has ended, and 1 rows wait",
        ),
        // References to missing rows.
        ("DELETE FROM runs WHERE parent IS NOT NULL", ChildLost, "call delegate"),
        ("DELETE FROM threads WHERE id = 'thr_early'", Orphan, "no row of threads"),
        ("UPDATE revisions SET text = 'other'", RevisionDiffers, "its text has the digest"),
        ("DELETE FROM revisions", RevisionDiffers, "not stored"),
        // Inline agents.
        (
            "DELETE FROM brought",
            RevisionDiffers,
            "run brought on thread thr_brought of acme its frozen agent",
        ),
        ("UPDATE brought SET text = 'what came alone'", RevisionDiffers, "has a text with the digest"),
        (
            "UPDATE brought SET tenant = 'thief'",
            ThreadDiffers,
            "came with a message belongs to another tenant",
        ),
        (
            "INSERT INTO brought SELECT r.tenant, r.thread, b.digest, b.text FROM brought b, runs r WHERE r.id = 'ended'",
            Orphan,
            "no run of the thread is pinned to",
        ),
        ("DELETE FROM runs WHERE id = 'keyed'", Orphan, "no row of runs"),
    ];
    for (sql, code, says) in faults {
        planter.plant(sql).await;
        let report = fixture.examined().await;
        let found = report.findings.kept().iter().any(|finding| {
            finding.code == code && format!("{} {}", finding.place, finding.what).contains(says)
        });
        assert!(found, "{sql}: no {code:?} that says {says:?} in {:#?}", report.findings.kept());
        assert!(report.findings.counts()[&code] > 0);
        planter.restore().await;
    }
    fixture.assert_healthy().await;
}

#[tokio::test]
async fn what_the_database_cannot_read_is_found_and_the_rest_is_still_examined() {
    let fixture = ExaminedStore::populated().await;
    let threads = fixture.assert_healthy().await.threads;
    let fails = "ALTER TABLE decisions RENAME TO decisions_kept;
        CREATE FUNCTION fails(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            IF $1 LIKE '%\"d1\"%' THEN RAISE EXCEPTION USING ERRCODE = 'XX001', MESSAGE = 'invalid page in block 7'; END IF;
            RETURN $1;
        END $$;
        CREATE VIEW decisions AS SELECT tenant, run, id, fails(decision) AS decision FROM decisions_kept";
    fixture.cluster.client().await.batch_execute(fails).await.unwrap();
    let report = fixture.examined().await;
    let found = report.findings.kept();
    let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
    assert_eq!((places, report.threads), (vec!["table decisions", "thread thr_ended of acme"], threads));
    assert_eq!(report.findings.counts().len(), 1, "{found:?}");
    assert_eq!(found[0].code, FindingCode::FileDamaged);
    assert!(found[0].what.contains("invalid page in block 7"), "{found:?}");
}

/// The tables that every commit writes to have no foreign keys, so the doctor checks each of them for orphans.
#[tokio::test]
async fn orphan_rows_are_found_in_every_table() {
    let fixture = ExaminedStore::populated().await;
    let planter = FaultPlanter::new(&fixture.cluster).await;
    for (table, column) in [
        ("runs", "thread"),
        ("messages", "thread"),
        ("call_ids", "thread"),
        ("grants", "thread"),
        ("plugin_state", "thread"),
        ("post_keys", "thread"),
        ("brought", "thread"),
        ("commits", "run"),
        ("inbox", "run"),
        ("suspensions", "run"),
        ("decisions", "run"),
        ("remembered", "run"),
    ] {
        let stray = format!(
            "UPDATE {table} SET {column} = 4711 WHERE {column} = (SELECT max({column}) FROM {table})"
        );
        planter.plant(&stray).await;
        let report = fixture.examined().await;
        let place = format!("{table} of {column} 4711");
        let found = report
            .findings
            .kept()
            .iter()
            .any(|finding| finding.code == FindingCode::Orphan && finding.place == place);
        assert!(found, "{place}: {:#?}", report.findings.kept());
        planter.restore().await;
    }
    fixture.assert_healthy().await;
}
