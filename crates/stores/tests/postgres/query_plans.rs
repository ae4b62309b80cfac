//! The number of rows that a commit reads does not grow with the tables, even with a plan made on empty tables.

use engine::store::{AutoApproval, StoreError};
use machine::id::ThreadId;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::nodes::Cluster;
use crate::postgres_server::Server;
use crate::worker::started;

/// The settings of every session of a store.
const PLANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off";
/// Table rows and index entries that this session has read.
const LOOKED_AT: &str = "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1";
/// The next commit of a run, with a message and a call.
const APPEND: &str = "SELECT append_batch($1, NULL, ARRAY[$2::bigint], '{acme}', '{run}', ARRAY[$3::bigint],
    ARRAY[$4::bigint], '{1}', ARRAY[$4 + 1], '{running}', '{NULL}', '{false}', '{NULL}', '{NULL}', '{waiting}', '{x}', '{x}', '{x}',
    '{x}', '{1}', '{1}', '{msg_said}', ARRAY[$4 + 1], '{user}', '{1}', '{asked}', '{}', '{}') = '{held}'";
/// The first commit of another run on a free thread.
const CREATION: &str = "SELECT (create_batch($1, NULL, '{acme}', '{free}', ARRAY[$3::bigint], ARRAY[$2::text], '{next}',
    '{assistant}', '{msg_new}', '{1}', '{running}', '{NULL}', '{false}', '{1}', '{1}', '{user_message}', '{x}', '{x}', '{x}',
    '{1}', '{1}', '{msg_new}', '{1}', '{user}', '{1}', '{asked}', '{}', '{}', '{}'))[1] IS NOT NULL";
/// Many rows of other runs in every table that a commit reads.
const OTHERS: &str = "
    INSERT INTO threads (tenant, id, created_at, metadata) VALUES ('acme', 'others', 1, 'null');
    INSERT INTO runs (
        tenant, id, thread, agent, status, holds, seq, epoch, in_doubt, ready, created_at, ended_at, control
    ) SELECT 'acme', 'other' || i, thread, 'a', 'completed', false, 1, 0, false, 0, 1, 1, ''
    FROM threads, generate_series(1, 3000) AS i WHERE id = 'others';
    INSERT INTO inbox (tenant, run, kind, item) SELECT 'acme', run, 'interrupt', 'x' FROM runs WHERE id LIKE 'other%';
    INSERT INTO call_ids (tenant, thread, id)
    SELECT 'acme', thread, i FROM threads, generate_series(1, 3000) AS i WHERE id = 'others';
    INSERT INTO messages (tenant, thread, id, run, seq, role, place)
    SELECT 'acme', thread, i, 1, 1, 'user', i FROM threads, generate_series(1, 3000) AS i WHERE id = 'others'";

/// Runs a statement that returns whether it succeeded, and rolls it back. Returns how many rows it read.
async fn looks_at(client: &Client, schema: &String, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> i64 {
    client.batch_execute("BEGIN").await.unwrap();
    let looked_at = async || client.query_one(LOOKED_AT, &[schema]).await.unwrap().get::<_, i64>(0);
    let before = looked_at().await;
    assert!(client.query_one(sql, parameters).await.unwrap().get::<_, bool>(0), "{sql}");
    let count = looked_at().await - before;
    client.batch_execute("ROLLBACK").await.unwrap();
    count
}

#[tokio::test]
async fn what_a_commit_reads_does_not_grow_with_the_tables() {
    // A server of its own: on the shared one, tests keep creating and dropping tables, so plans are often remade.
    let server = Server::start();
    let cluster = Cluster::on(&server);
    let node = cluster.node().await;
    let worker = started(&node.world, "thr", "run").await;
    let mut ended = started(&node.world, "free", "ended").await;
    ended.finish_with("done");
    ended.commit(&node.world).await.unwrap();
    let client = cluster.client().await;
    client.batch_execute(PLANS).await.unwrap();
    let run = "SELECT run, node, epoch, seq FROM runs WHERE id = 'run'";
    let run = client.query_one(run, &[]).await.unwrap();
    let (number, holder, epoch, seq): (i64, i64, i64, i64) = (run.get(0), run.get(1), run.get(2), run.get(3));
    assert_eq!(number, worker.lease.row);
    let head = "SELECT id FROM messages WHERE run <> $1 ORDER BY place DESC LIMIT 1";
    let head: String = client.query_one(head, &[&number]).await.unwrap().get(0);
    let appends =
        async || looks_at(&client, &cluster.schema, APPEND, &[&holder, &number, &epoch, &seq]).await;
    let thread = client.query_one("SELECT thread FROM threads WHERE id = 'free'", &[]).await.unwrap();
    let thread: i64 = thread.get(0);
    let creates = async || looks_at(&client, &cluster.schema, CREATION, &[&holder, &head, &thread]).await;
    let alone = (appends().await, creates().await);
    assert!(alone.0 > 0 && alone.1 > 0, "no row was counted: {alone:?}");
    client.batch_execute(OTHERS).await.unwrap();
    let among_many = (appends().await, creates().await);
    assert!(
        among_many.0 <= alone.0 + 10 && among_many.1 <= alone.1 + 10,
        "{among_many:?} instead of {alone:?}"
    );
}

/// Runs that were woken and that no node holds.
const WOKEN: &str = "
    INSERT INTO threads (tenant, id, created_at, metadata)
    SELECT 'acme', 'woken_' || i, 1, 'null' FROM generate_series(1, 3000) AS i;
    INSERT INTO runs (
        tenant, id, thread, agent, status, holds, seq, epoch, in_doubt, ready, ready_at, created_at, control
    ) SELECT 'acme', 'of_' || id, thread, 'a', 'waiting_tool', true, 1, 0, false, 1, 1, 1, ''
    FROM threads WHERE id LIKE 'woken_%'";

#[tokio::test]
async fn an_urgent_claim_scans_no_other_woken_run() {
    let server = Server::start();
    let cluster = Cluster::on(&server);
    let _node = cluster.node().await;
    let client = cluster.client().await;
    client.batch_execute(PLANS).await.unwrap();
    let claim = "SELECT claim_woken(1, 10, NULL, true, NULL) = '{}'";
    let alone = looks_at(&client, &cluster.schema, claim, &[]).await;
    client.batch_execute(WOKEN).await.unwrap();
    let among_many = looks_at(&client, &cluster.schema, claim, &[]).await;
    assert!(among_many <= alone + 10, "{among_many} instead of {alone}");
    let others = "SELECT cardinality(claim_woken(1, 10, NULL, false, NULL)) >= 0";
    assert!(looks_at(&client, &cluster.schema, others, &[]).await >= 10, "no row was counted");
}

#[tokio::test]
async fn revoked_grants_are_in_no_index_that_a_thread_is_read_by() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let (tenant, thread) = (node.world.tenant.clone(), ThreadId::from("thr"));
    let store = &node.world.store;
    store.put_thread(&tenant, &thread, &serde_json::Value::Null).await.unwrap();
    let set = async |id: &str, on: bool| {
        let given = AutoApproval { id: id.into(), by: "ana".into() };
        store.set_auto_approve(&tenant, &thread, on.then_some(&given), &"tester".into()).await.unwrap();
    };
    for index in 0..30 {
        set(&format!("grt_{index}"), true).await;
        match index % 3 {
            0 => set("", false).await,
            1 => store.revoke_grant(&tenant, &format!("grt_{index}").into(), &"tester".into()).await.unwrap(),
            _ => {}
        }
    }
    set("grt_last", true).await;
    assert_eq!(
        store.revoke_grant(&tenant, &"grt_1".into(), &"tester".into()).await,
        Err(StoreError::NotFound)
    );
    let client = cluster.client().await;
    let rows = client.query_one("SELECT array_agg(id) FROM grants", &[]).await.unwrap();
    assert_eq!(rows.get::<_, Vec<String>>(0), ["grt_last"]);
    // Revoked grants from approvals are kept, because the log contains them.
    let revoked =
        "INSERT INTO grants (tenant, id, thread, tool, agent, definition, reasons, given_by, since, revoked)
        SELECT tenant, 'old_' || i, thread, 'transfer', 'a', sha256(''), '[]', 'ana', 1, true
        FROM threads, generate_series(1, 3000) AS i WHERE id = 'thr'";
    client.batch_execute(PLANS).await.unwrap();
    let reads = "SELECT auto_approved_by = 'ana' AND approved_tools = '{}' FROM threads_shown WHERE id = 'thr' AND tenant = $1";
    let tenant = tenant.as_str().to_owned();
    let alone = looks_at(&client, &cluster.schema, reads, &[&tenant]).await;
    client.batch_execute(revoked).await.unwrap();
    let among_many = looks_at(&client, &cluster.schema, reads, &[&tenant]).await;
    assert!(among_many <= alone + 10, "{among_many} instead of {alone}");
}
