//! Hash chains of a database: the doctor finds every change of a log, and a run whose last commit was changed is halted.

use std::sync::Arc;

use engine::store::{Claim, Claimed, StoreFailure};
use machine::event::{InterruptCause, RunRequest, UserMessage};
use machine::inbox::Item;
use machine::policy::OnBusy;
use machine::projection_rows::PublicRunStatus;
use serde_json::json;
use stores::postgres::doctor::FindingCode;
use tokio_postgres::Client;

use crate::doctor::ExaminedStore;
use crate::fixture::World;
use crate::nodes::Cluster;
use crate::sample_data::freeze_agent;
use crate::tampering::{LoggedCommit, Tampering, tamperings};
use crate::worker::{creation, order, parked};

async fn log_of(client: &Client, run: &str) -> Vec<LoggedCommit> {
    let sql = "SELECT first_seq, last_seq, body FROM commits WHERE run = (SELECT run FROM runs WHERE id = $1)
        ORDER BY last_seq";
    let rows = client.query(sql, &[&run]).await.unwrap();
    let commit = |row: &tokio_postgres::Row| LoggedCommit {
        first_seq: row.get(0),
        last_seq: row.get(1),
        body: row.get(2),
    };
    rows.iter().map(commit).collect()
}

async fn tamper(client: &Client, sql: &str) {
    let row = |run| format!("(SELECT run FROM runs WHERE tenant = 'acme' AND id = '{run}')");
    let sql = sql.replace("{ended}", &row("ended")).replace("{waits}", &row("waits"));
    let changed = client.execute(&sql, &[]).await.unwrap_or_else(|why| panic!("{sql}: {why:?}"));
    assert_ne!(changed, 0, "{sql} changes nothing");
}

#[tokio::test]
async fn every_way_to_tamper_with_a_log_is_found_and_names_run_and_commit() {
    let fixture = ExaminedStore::populated().await;
    let report = fixture.assert_healthy().await;
    assert_eq!((report.chains.whole, report.chains.late, report.chains.none), (report.runs, 0, 0));
    let client = fixture.cluster.client().await;
    client
        .batch_execute("CREATE TABLE good_commits AS TABLE commits; CREATE TABLE good_runs AS TABLE runs")
        .await
        .unwrap();
    for Tampering { sql, run, says } in tamperings(&log_of(&client, "ended").await) {
        for sql in &sql {
            tamper(&client, sql).await;
        }
        let report = fixture.examined().await;
        let found = report.findings.kept().iter().any(|finding| {
            finding.code == FindingCode::ChainBroken
                && finding.place.starts_with(&format!("run {run} on thread "))
                && finding.what.contains(&says)
        });
        assert!(found, "{sql:?}: nothing says {says:?} in {:#?}", report.findings.kept());
        let again = "DELETE FROM commits; INSERT INTO commits SELECT * FROM good_commits;
            UPDATE runs r SET chain_head = g.chain_head, chain_from = g.chain_from FROM good_runs g WHERE g.run = r.run;
            UPDATE suspensions SET decided_by = 'ana' WHERE decided_by = 'eve'";
        client.batch_execute(again).await.unwrap();
    }
    fixture.assert_healthy().await;
}

async fn claim(world: &World, run: &str) -> Claimed {
    let claim = Claim::Run { tenant: world.tenant.clone(), run: run.into() };
    world.store.claim(claim).await.unwrap().pop().expect("the run is claimed")
}

#[tokio::test]
async fn a_run_whose_last_commit_was_changed_is_halted_and_the_next_one_continues() {
    let cluster = Cluster::new();
    let world = cluster.node().await.world;
    freeze_agent(&world).await;
    parked(&world, "thr_bad", "bad", "transfer").await;
    parked(&world, "thr_good", "good", "transfer").await;
    let client = cluster.client().await;
    let changed = "UPDATE commits SET body = replace(body, '\"call_bad\"', '\"call_eve\"')
        WHERE run = (SELECT run FROM runs WHERE id = 'bad') AND first_seq > 1";
    tamper(&client, changed).await;
    for run in ["bad", "good"] {
        world.submit_accepted(run, Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
    }
    assert_eq!(world.run("bad").await.control, None, "it is shown as unreadable");
    assert!(world.run("good").await.control.is_some());
    let mut claimed = world.store.claim(Claim::Next { limit: 10, skip_tenant: None }).await.unwrap();
    claimed.sort_by(|one, other| one.lease.run.cmp(&other.lease.run));
    let [bad, good] = &claimed[..] else { panic!("{claimed:?}") };
    assert!(good.loaded.is_ok());
    let Err(StoreFailure::Corrupt(why)) = &bad.loaded else { panic!("{:?}", bad.loaded) };
    assert!(why.contains("run bad") && why.contains("the commit of events"), "{why}");
    assert!(why.contains("does not match its hash") && why.contains("holdpoint doctor"), "{why}");
    world.store.load(&bad.lease).await.expect_err("it is still halted");
    world.store.load(&good.lease).await.unwrap();
    world.store.end_undecoded(&bad.lease).await.unwrap();
    assert_eq!(world.run("bad").await.status, PublicRunStatus::Interrupted);
    world.store.delete_thread(&world.tenant, &"thr_bad".into(), &"tester".into()).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_end_was_cut_off_or_whose_head_was_changed_is_halted() {
    let last = "first_seq = (SELECT max(first_seq) FROM commits)";
    let faults = [
        (format!("DELETE FROM commits WHERE {last}"), "the log ends with event"),
        ("UPDATE runs SET chain_head = sha256('x')".into(), "the head in the run's row"),
        ("UPDATE runs SET chain_head = 'short'".into(), "the head in the run's row"),
        ("UPDATE runs SET chain_head = NULL".into(), "the head in the run's row"),
        (format!("UPDATE commits SET hash = sha256('x') WHERE {last}"), "does not match its hash"),
        (format!("UPDATE commits SET hash = NULL WHERE {last}"), "has no hash"),
    ];
    for (sql, says) in faults {
        let cluster = Cluster::new();
        let world = cluster.node().await.world;
        parked(&world, "thr", "run", "transfer").await;
        tamper(&cluster.client().await, &sql).await;
        let claimed = claim(&world, "run").await;
        let Err(StoreFailure::Corrupt(why)) = &claimed.loaded else { panic!("{sql}: {:?}", claimed.loaded) };
        assert!(why.contains(says), "{sql}: {why}");
        assert_eq!(world.run("run").await.control, None, "{sql}");
        world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
        world.store.end_undecoded(&claimed.lease).await.unwrap_or_else(|why| panic!("{sql}: {why}"));
    }
}

/// The answer to a claim leaves a long commit out, and the node reads it afterwards.
#[tokio::test]
async fn a_long_last_commit_is_compared_too() {
    let cluster = Cluster::new();
    let world = cluster.node().await.world;
    let request = order("thr", "run");
    let message = request
        .message
        .clone()
        .map(|message| UserMessage { content: Arc::new(json!("long ".repeat(10_000))), ..message });
    let request = RunRequest { message, ..request };
    world.store.create(creation(&world, request, OnBusy::Reject, false).await).await.unwrap();
    let client = cluster.client().await;
    let long = client.query_one("SELECT max(octet_length(body)) FROM commits", &[]).await.unwrap();
    assert!(long.get::<_, i32>(0) > 32_768);
    let claimed = claim(&world, "run").await;
    assert!(claimed.loaded.is_ok(), "{:?}", claimed.loaded);
    assert!(world.store.release(&claimed.lease).await.unwrap());
    tamper(&client, "UPDATE commits SET body = body || ' '").await;
    assert!(claim(&world, "run").await.loaded.is_err());
}
