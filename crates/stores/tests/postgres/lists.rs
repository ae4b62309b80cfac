//! Lists: each uses its index, and neither slow nor abandoned lists block other requests.

use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;

use engine::store::{ApprovalFilter, Page, ViewStore};
use machine::id::{RunId, ThreadId};
use serde_json::Value;
use tokio_postgres::Client;

use crate::nodes::{Cluster, until, with_timeout};
use crate::worker::queued;

/// A quarter of a node's connections.
const LIST_COUNT: i64 = 4;
/// More than a node has connections.
const ASKED_COUNT: usize = 64;

/// The settings of every session of a store: no table scans, and one plan for all parameters.
const SESSION: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

async fn plan(client: &Client, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/postgres/sql/{name}.sql"));
    let sql = fs::read_to_string(path).unwrap();
    let count = (1..).take_while(|number| sql.contains(&format!("${number}"))).count();
    client.batch_execute(&format!("PREPARE planned AS {sql}")).await.unwrap();
    let nothing = vec!["NULL"; count].join(", ");
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE planned ({nothing})");
    let mut plan = String::new();
    for message in client.simple_query(&explain).await.unwrap() {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            writeln!(plan, "{}", row.get(0).unwrap()).unwrap();
        }
    }
    client.batch_execute("DEALLOCATE planned").await.unwrap();
    plan
}

/// However many other rows there are: the index covers every condition and the order of the list.
async fn assert_found_by_what_is_asked_for(client: &Client) {
    let newer = "(ROW(created_at, id) < ROW($3, $4))";
    let older = "(ROW(created_at, id) > ROW($3, $4))";
    let of_agent = "(tenant = $1) AND (agent = $7) AND ((status || ''::text) = s.status)";
    let lists = [
        ("runs_newest", "runs_by_status", format!("(tenant = $1) AND (status = s.status) AND {newer}")),
        ("runs_of_agent", "runs_by_agent", format!("{of_agent} AND {newer}")),
        ("runs_newest", "runs_interrupting", format!("(tenant = $1) AND {newer}")),
        ("runs_of_agent", "runs_interrupting", format!("(tenant = $1) AND {newer}")),
        ("runs_of_thread", "runs_by_thread", format!("(thread = t.thread) AND {newer}")),
        ("run_view", "runs_tenant_id_key", "(tenant = $1) AND (id = $2)".into()),
        ("threads_newest", "threads_by_age", "(tenant = $1) AND (ROW(created_at, id) < ROW($2, $3))".into()),
        ("approvals_oldest", "suspensions_pending", format!("(tenant = $1) AND {older}")),
        (
            "approvals_oldest",
            "suspensions_by_age",
            format!("(tenant = $1) AND (status = a.status) AND {older}"),
        ),
        ("approvals_of_run", "runs_by_parent", "parent = tree_1.run".into()),
        ("approvals_of_run", "suspensions_by_run", "run = tree.run".into()),
        ("thread_by_id", "runs_by_parent", "parent = below_1.run".into()),
        ("messages_in_order", "messages_thread_place_key", "(thread = t.thread) AND (place > $3)".into()),
    ];
    for (name, index, wanted) in lists {
        let plan = plan(client, name).await;
        let lines: Vec<&str> = plan.lines().collect();
        let (using, condition) = (format!(" using {index} on "), format!("Index Cond: ({wanted})"));
        let is_found = |pair: &[&str]| pair[0].contains(&using) && pair[1].contains(&condition);
        assert!(lines.windows(2).any(is_found), "{name}: no {using} with {condition} in\n{plan}");
    }
}

/// Ended runs of one tenant and one agent.
const MANY: &str = "INSERT INTO threads (tenant, id, created_at, metadata)
        SELECT 'acme', 'many_' || n, n, '{}' FROM generate_series(1, 20000) AS n;
    INSERT INTO runs (tenant, id, thread, agent, status, holds, seq, epoch, in_doubt, ready, created_at, ended_at, control)
        SELECT tenant, 'run_of_' || id, thread, 'busy', 'completed', false, 1, 0, false, 0, created_at, created_at, ''
        FROM threads WHERE id LIKE 'many_%';
    ANALYZE runs; ANALYZE threads";

#[tokio::test]
async fn no_list_scans_everything_of_its_tenant() {
    let cluster = Cluster::new();
    let _node = cluster.node().await;
    let client = cluster.client().await;
    client.batch_execute(SESSION).await.unwrap();
    // A plan that was made on empty tables is kept until the database has analyzed the tables.
    assert_found_by_what_is_asked_for(&client).await;
    client.batch_execute(MANY).await.unwrap();
    assert_found_by_what_is_asked_for(&client).await;
}

/// Polls the task once, so that its request is in flight.
async fn begin<T>(task: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) {
    std::future::poll_fn(|context| {
        assert!(task.as_mut().poll(context).is_pending(), "the task ended at once");
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_and_abandoned_lists_leave_connections_for_the_rest() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    queued(&node.world, "thr", "run").await;
    let (store, tenant) = (node.store.clone(), node.world.tenant.clone());
    // This lock blocks every read of approvals.
    let (lock, client) = (cluster.client().await, cluster.client().await);
    lock.batch_execute("BEGIN; LOCK TABLE suspensions IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let stuck = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE NOT l.granted AND c.oid = 'suspensions'::regclass";
    let stuck = async || client.query_one(stuck, &[]).await.unwrap().get::<_, i64>(0);
    let (filter, page) = (ApprovalFilter::default(), Page::default());
    let mut lists: Vec<_> = (0..ASKED_COUNT).map(|_| store.approvals(&tenant, &filter, &page)).collect();
    for list in &mut lists {
        begin(list).await;
    }
    until("blocked lists", async || stuck().await == LIST_COUNT).await;
    // The caller abandons all lists: the first ones while the database works on them, the last ones before they begin.
    drop(lists);
    let thread = ThreadId::from("another");
    let works = async {
        assert_eq!(store.put_thread(&tenant, &thread, &Value::Null).await, Ok(true));
        let log = store.events(&tenant, &RunId::from("run"), 0, 256).await.unwrap();
        assert!(!log.is_empty());
        assert!(store.run(&tenant, &RunId::from("run")).await.unwrap().is_some());
    };
    with_timeout("the rest", works).await;
    assert_eq!(stuck().await, LIST_COUNT, "no abandoned list was begun, and none was sent twice");
    lock.batch_execute("COMMIT").await.unwrap();
    let listed = with_timeout("a list", store.approvals(&tenant, &filter, &page)).await.unwrap();
    assert_eq!(listed.items.len(), 0);
}
