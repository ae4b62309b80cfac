//! An item for a run that is submitted on one node reaches the node that holds the run.

use std::time::Duration;

use engine::store::{Claim, Notification};
use machine::inbox::Item;
use stores::postgres::{PostgresOpenError, PostgresSettings, PostgresStore};

use crate::nodes::{Cluster, NEVER, until};
use crate::proxy::{Cut, Proxy};
use crate::worker::{approve, claim, enqueued, started};

fn is_for(run: &'static str) -> impl Fn(&Notification) -> bool {
    move |ring| matches!(ring, Notification::Run { run: rung, .. } if rung.as_str() == run)
}

#[tokio::test]
async fn a_decision_on_another_node_wakes_the_holder() {
    let cluster = Cluster::new();
    // Without a notification the node would not look for an hour.
    let settings = PostgresSettings { poll_every: NEVER, ..cluster.settings() };
    let (holds, other) = (cluster.node_with(settings).await, cluster.node().await);
    let mut worker = started(&holds.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&holds.world).await.unwrap();
    holds.wait_until_listening(&cluster).await;
    other.world.submit_accepted("run", Item::Decision(worker.decision("a", None, approve()))).await;
    holds.receives(is_for("run")).await;
    worker.reload(&holds.world).await;
    assert_eq!(worker.inbox.len(), 1);
}

#[tokio::test]
async fn an_approval_on_one_node_notifies_another() {
    let cluster = Cluster::new();
    let settings = PostgresSettings { poll_every: NEVER, ..cluster.settings() };
    let (holds, other) = (cluster.node().await, cluster.node_with(settings).await);
    // A listener that has just connected may have missed earlier notifications.
    other.receives(|ring| *ring == Notification::ApprovalsMissed).await;
    let is_news = |ring: &Notification| match ring {
        Notification::Approvals { tenant, run } => (tenant.as_str(), run.as_str()) == ("acme", "run"),
        _ => false,
    };
    let mut worker = started(&holds.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&holds.world).await.unwrap();
    other.receives(is_news).await;
    worker.accept(Item::Decision(worker.decision("a", None, approve())));
    worker.commit(&holds.world).await.unwrap();
    other.receives(is_news).await;
}

#[tokio::test]
async fn a_gone_node_counts_as_missed_approvals() {
    let cluster = Cluster::new();
    let settings = PostgresSettings { poll_every: Duration::from_millis(5), ..cluster.settings() };
    let node = cluster.node_with(settings).await;
    node.receives(|ring| *ring == Notification::ApprovalsMissed).await;
    let client = cluster.client().await;
    let comes = "INSERT INTO nodes (name, started_at, expires_at) VALUES ('gone', 0, 9000000000000000)";
    until("a notification about a node that is gone", || async {
        client.execute(comes, &[]).await.unwrap();
        let missed = || node.receives(|ring| *ring == Notification::ApprovalsMissed);
        let early = tokio::time::timeout(Duration::from_millis(100), missed()).await;
        assert!(early.is_err(), "a node that joins causes no missed approvals");
        client.execute("DELETE FROM nodes WHERE name = 'gone'", &[]).await.unwrap();
        tokio::time::timeout(Duration::from_millis(500), missed()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_lost_notification_is_recovered_by_the_next_poll() {
    let cluster = Cluster::new();
    let proxy = Proxy::to(cluster.server.port).await;
    proxy.set("LISTEN holdpoint", Cut::Silence);
    let address = cluster.server.address_by_port(proxy.port);
    let (deaf, other) = (cluster.node_at(&address, cluster.settings()).await, cluster.node().await);
    let mut worker = started(&deaf.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&deaf.world).await.unwrap();
    until("a silenced listener", || async { proxy.has_triggered() }).await;
    other.world.submit_accepted("run", Item::Decision(worker.decision("a", None, approve()))).await;
    deaf.receives(is_for("run")).await;
    worker.reload(&deaf.world).await;
    assert_eq!(worker.inbox.len(), 1);
}

#[tokio::test]
async fn a_reconnected_listener_polls_at_once() {
    let cluster = Cluster::new();
    // Nothing else makes the node poll for an hour.
    let settings = PostgresSettings { poll_every: NEVER, ..cluster.settings() };
    let node = cluster.node_with(settings).await;
    let worker = started(&node.world, "thr", "run").await;
    node.wait_until_listening(&cluster).await;
    let client = cluster.client().await;
    // This item is stored without a notification.
    let unsaid = "SELECT s.outcome FROM runs r CROSS JOIN LATERAL submit(
        r.run, r.version, '{\"kind\": \"interrupt\", \"text\": \"{}\"}', NULL
    ) AS s WHERE r.run = $1";
    let taken = client.query_one(unsaid, &[&worker.lease.row]).await.unwrap();
    assert_eq!(taken.get::<_, &str>(0), "taken");
    let early = tokio::time::timeout(Duration::from_millis(300), node.receives(is_for("run"))).await;
    assert!(early.is_err(), "the node does not poll yet");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = $1";
    let ears = client.query_one(cut, &[&format!("LISTEN holdpoint_{}", cluster.schema)]).await.unwrap();
    assert_eq!(ears.get::<_, i64>(0), 1);
    node.receives(is_for("run")).await;
}

#[tokio::test]
async fn inbox_items_that_were_read_cause_no_wake() {
    let cluster = Cluster::new();
    let (holds, other) = (cluster.node().await, cluster.node().await);
    let mut worker = started(&holds.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&holds.world).await.unwrap();
    other.world.submit_accepted("run", Item::Decision(worker.decision("a", None, approve()))).await;
    holds.receives(is_for("run")).await;
    worker.reload(&holds.world).await;
    // Another run is woken twice. By the time the node reports that, it has polled past this run twice.
    let mut second = started(&holds.world, "thr_2", "second").await;
    second.asks(&[("b", "transfer")]);
    second.commit(&holds.world).await.unwrap();
    let quiet = std::cell::Cell::new(true);
    for _ in 0..2 {
        let client = cluster.client().await;
        client.execute("UPDATE runs SET ready = 1, ready_at = 1 WHERE id = 'second'", &[]).await.unwrap();
        client.execute(
            "INSERT INTO inbox (tenant, run, kind, item) SELECT tenant, run, 'interrupt', '{}' FROM runs WHERE id = 'second'",
            &[],
        )
        .await
        .unwrap();
        holds
            .receives(|ring| {
                quiet.set(quiet.get() && !is_for("run")(ring));
                is_for("second")(ring)
            })
            .await;
    }
    assert!(quiet.get(), "a row that was read and left in the inbox causes no further wake-up");
}

fn is_commit_of(run: &'static str) -> impl Fn(&Notification) -> bool {
    move |ring| matches!(ring, Notification::Committed { run: rung } if rung.as_str() == run)
}

#[tokio::test]
async fn a_watcher_on_another_node_is_notified_of_a_commit() {
    let cluster = Cluster::new();
    let watches = cluster.node_with(PostgresSettings { poll_every: NEVER, ..cluster.settings() }).await;
    // The claim makes it a registered node, so nodes that start later know about it.
    assert!(watches.world.store.claim(Claim::Next { limit: 1, skip_tenant: None }).await.unwrap().is_empty());
    watches.wait_until_listening(&cluster).await;
    let works = cluster.node().await;
    let mut worker = started(&works.world, "thr", "run").await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&works.world).await.unwrap();
    watches.receives(is_commit_of("run")).await;
}

#[tokio::test]
async fn a_watcher_finds_a_commit_whose_notification_was_lost() {
    let cluster = Cluster::new();
    let proxy = Proxy::to(cluster.server.port).await;
    proxy.set("LISTEN holdpoint", Cut::Silence);
    let address = cluster.server.address_by_port(proxy.port);
    let (deaf, works) = (cluster.node_at(&address, cluster.settings()).await, cluster.node().await);
    until("a silenced listener", || async { proxy.has_triggered() }).await;
    let mut worker = started(&works.world, "thr", "run").await;
    let read = || async {
        deaf.world.store.events(&deaf.world.tenant, &"run".into(), 0, 1_000).await.unwrap().len()
    };
    let before = read().await;
    worker.asks(&[("a", "transfer")]);
    worker.commit(&works.world).await.unwrap();
    deaf.receives(is_commit_of("run")).await;
    assert!(read().await > before);
}

fn is_about_thread(thread: &'static str) -> impl Fn(&Notification) -> bool {
    move |ring| matches!(ring, Notification::Thread { thread: rung, .. } if rung.as_str() == thread)
}

#[tokio::test]
async fn a_follower_of_a_thread_on_another_node_is_notified_of_runs_and_of_its_deletion() {
    let cluster = Cluster::new();
    let follows = cluster.node_with(PostgresSettings { poll_every: NEVER, ..cluster.settings() }).await;
    assert!(follows.world.store.claim(Claim::Next { limit: 1, skip_tenant: None }).await.unwrap().is_empty());
    follows.wait_until_listening(&cluster).await;
    let works = cluster.node().await;
    let mut worker = started(&works.world, "thr", "run").await;
    follows.receives(is_about_thread("thr")).await;
    enqueued(&works.world, "thr", "next").await;
    follows.receives(is_about_thread("thr")).await;
    worker.finish_with("done");
    worker.commit(&works.world).await.unwrap();
    let mut next = claim(&works.world, "next").await.unwrap();
    next.accept(Item::Interrupt { cause: machine::event::InterruptCause::Person("bob".into()) });
    next.commit(&works.world).await.unwrap();
    works.world.store.delete_thread(&works.world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    follows.receives(is_about_thread("thr")).await;
}

#[tokio::test]
async fn a_follower_of_a_thread_finds_a_run_and_a_deletion_whose_notifications_were_lost() {
    let cluster = Cluster::new();
    let proxy = Proxy::to(cluster.server.port).await;
    proxy.set("LISTEN holdpoint", Cut::Silence);
    let address = cluster.server.address_by_port(proxy.port);
    let (deaf, works) = (cluster.node_at(&address, cluster.settings()).await, cluster.node().await);
    until("a silenced listener", || async { proxy.has_triggered() }).await;
    let tenant = &deaf.world.tenant;
    let read = || async { deaf.world.store.runs_of_thread(tenant, &"thr".into(), None, 10).await };
    works.world.store.put_thread(tenant, &"thr".into(), &serde_json::Value::Null).await.unwrap();
    assert_eq!(read().await.unwrap(), []);
    let mut worker = started(&works.world, "thr", "run").await;
    deaf.receives(is_about_thread("thr")).await;
    assert_eq!(read().await.unwrap(), ["run".into()]);
    worker.finish_with("done");
    worker.commit(&works.world).await.unwrap();
    started(&works.world, "thr", "second").await;
    deaf.receives(is_about_thread("thr")).await;
    assert_eq!(read().await.unwrap().len(), 2);
    works.world.store.put_thread(tenant, &"other".into(), &serde_json::Value::Null).await.unwrap();
    assert_eq!(deaf.world.store.runs_of_thread(tenant, &"other".into(), None, 10).await.unwrap(), []);
    works.world.store.delete_thread(tenant, &"other".into(), &"tester".into()).await.unwrap();
    deaf.receives(is_about_thread("other")).await;
}

#[tokio::test]
async fn a_node_that_may_not_notify_still_polls_and_takes_over() {
    let cluster = Cluster::new();
    let address = cluster.database("").await;
    let mute = format!("mute_{}", cluster.schema);
    let client = cluster.client_at(&address).await;
    let no_words = format!(
        "CREATE ROLE {mute} LOGIN; GRANT CREATE ON DATABASE {}_database TO {mute};
        REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC",
        cluster.schema
    );
    client.batch_execute(&no_words).await.unwrap();
    let address = address.replace("user=holdpoint", &format!("user={mute}"));
    let lease = Duration::from_secs(2);
    let settings = PostgresSettings { lease, renew_every: lease / 4, ..cluster.settings() };
    let (dies, lives) =
        (cluster.node_at(&address, settings.clone()).await, cluster.node_at(&address, settings).await);
    let lost = started(&dies.world, "thr", "lost").await;
    let holds = started(&lives.world, "thr_2", "holds").await;
    // The other node should be notified of this item, and is not.
    let item = Item::Interrupt { cause: machine::event::InterruptCause::Person("bob".into()) };
    dies.world.submit_accepted("holds", item).await;
    lives.receives(is_for("holds")).await;
    assert!(lives.world.store.may_send(&holds.lease));
    // This node also sends notifications, which fail.
    assert!(lives.world.store.release(&started(&lives.world, "thr_3", "let_go").await.lease).await.unwrap());
    drop(dies);
    until("the runs of the lost node", || async {
        let claimed = lives.world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap();
        claimed.iter().any(|claimed| claimed.lease.run == lost.lease.run)
    })
    .await;
}

#[tokio::test]
async fn a_node_that_would_receive_no_notifications_is_refused() {
    let cluster = Cluster::new();
    let proxy = Proxy::to(cluster.server.port).await;
    let address = cluster.server.address_by_port(proxy.port);
    let settings = PostgresSettings { answer_timeout: Duration::from_secs(2), ..cluster.settings() };
    proxy.swallow_notifications();
    let opened = PostgresStore::open_with(&address, settings).await;
    assert!(matches!(opened, Err(PostgresOpenError::NotificationsLost)), "{opened:?}");
}

#[tokio::test]
async fn a_listener_that_receives_nothing_reconnects() {
    let cluster = Cluster::new();
    let proxy = Proxy::to(cluster.server.port).await;
    let address = cluster.server.address_by_port(proxy.port);
    let settings = PostgresSettings { answer_timeout: Duration::from_secs(2), ..cluster.settings() };
    let node = cluster.node_at(&address, settings).await;
    node.wait_until_listening(&cluster).await;
    proxy.swallow_notifications();
    let client = cluster.client().await;
    let listens = format!("LISTEN holdpoint_{}", cluster.schema);
    let ear = "SELECT pid FROM pg_stat_activity WHERE query = $1";
    let first: i32 = client.query_one(ear, &[&listens]).await.unwrap().get(0);
    client.execute("SELECT pg_terminate_backend($1)", &[&first]).await.unwrap();
    let ears = std::cell::RefCell::new(std::collections::BTreeSet::from([first]));
    until("a third listener connection", || async {
        let rows = client.query(ear, &[&listens]).await.unwrap();
        ears.borrow_mut().extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        ears.borrow().len() >= 3
    })
    .await;
}
