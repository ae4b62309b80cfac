//! Requests to one thread at the same time: a deletion or `prune` beside a message, and many messages at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Client, kinds};
use crate::probe_store::BlockPoint;
use crate::test_server::{StoreKind, TestPlan, on_all_stores};

on_all_stores! {
    a_message_beside_the_deletion_of_its_thread_never_brings_it_back;
    a_thread_is_created_beside_its_deletion;
    of_several_superseding_messages_the_last_one_runs;
    a_queue_with_room_takes_every_message;
}

/// How often a race is run: `RACE_ROUNDS`, or a few times.
fn rounds(few: usize) -> usize {
    std::env::var("RACE_ROUNDS").map_or(few, |text| text.parse().expect("a number"))
}

/// A run that is stuck never gets there.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("a run is stuck")
}

async fn say(client: &Client, thread: &str, on_busy: &str) -> Answer {
    let body = json!({"agent": "assistant", "text": "write it", "on_busy": on_busy});
    client.post(&format!("/v1/threads/{thread}/messages"), body).await
}

fn run_of(answer: Answer) -> String {
    answer.ok(202)["run_id"].as_str().unwrap().to_owned()
}

async fn a_message_beside_the_deletion_of_its_thread_never_brings_it_back(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    for round in 0..rounds(30) {
        let (thread, path) = (format!("t{round}"), format!("/v1/threads/t{round}"));
        client.post("/v1/threads", json!({"id": thread, "metadata": {"kept": true}})).await.ok(201);
        let (posted, deleted) = tokio::join!(say(client, &thread, "reject"), client.delete(&path));
        let shown = client.get(&path).await;
        match (posted.status, deleted.status) {
            (404, 204) => {
                posted.refused(404, "THREAD_NOT_FOUND");
                shown.refused(404, "THREAD_NOT_FOUND");
            }
            (202, 409) => {
                deleted.refused(409, "ACTIVE_RUN_EXISTS");
                assert_eq!(shown.ok(200)["metadata"], json!({"kept": true}));
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

async fn a_thread_is_created_beside_its_deletion(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let create = || client.post("/v1/threads", json!({"id": "t"}));
    for round in 0..rounds(100) {
        let (first, second, _) = tokio::join!(create(), create(), client.delete("/v1/threads/t"));
        for created in [first, second] {
            assert!(matches!(created.status, 200 | 201), "round {round}: {}", created.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_beside_prune_never_brings_its_thread_back_on_sqlite() {
    a_message_beside_prune_never_brings_its_thread_back(StoreKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_beside_prune_never_brings_its_thread_back_on_postgres() {
    a_message_beside_prune_never_brings_its_thread_back(StoreKind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_is_pruned_between_look_and_creation_stays_gone_on_sqlite() {
    a_thread_that_is_pruned_between_look_and_creation_stays_gone(StoreKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_is_pruned_between_look_and_creation_stays_gone_on_postgres() {
    a_thread_that_is_pruned_between_look_and_creation_stays_gone(StoreKind::Postgres).await;
}

/// A run that starts at once is created otherwise than one that waits for a place.
async fn a_thread_that_is_pruned_between_look_and_creation_stays_gone(store_kind: StoreKind) {
    for (running_runs_max, first_reaches) in [(1, "waiting_approval"), (0, "queued")] {
        let mut plan = TestPlan::one_write(store_kind);
        plan.settings.running_runs_max = running_runs_max;
        let test_server = plan.build().await;
        let client = &test_server.client;
        with_an_ended_run(client, "t", first_reaches).await;
        let barrier = test_server.probe.block_at(BlockPoint::Create);
        let (posted, pruned) = tokio::join!(say(client, "t", "reject"), async {
            barrier.wait_for_arrival().await;
            let pruned = test_server.prune().await;
            test_server.probe.unblock();
            barrier.release_one();
            pruned
        });
        posted.refused(404, "THREAD_NOT_FOUND");
        assert_eq!(pruned, 1, "{first_reaches}");
        client.get("/v1/threads/t").await.refused(404, "THREAD_NOT_FOUND");
    }
}

/// A thread whose only run was interrupted as soon as it had this status. Gives the run.
async fn with_an_ended_run(client: &Client, thread: &str, status: &str) -> String {
    client.post("/v1/threads", json!({"id": thread, "metadata": {"kept": true}})).await.ok(201);
    let run = run_of(say(client, thread, "reject").await);
    soon(client.run_reaches(&run, status)).await;
    end(client, &run).await;
    run
}

/// Threads that are pruned together, so that some of them are reached before their message and some after it.
const PRUNED_TOGETHER: usize = 4;

async fn a_message_beside_prune_never_brings_its_thread_back(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    for round in 0..rounds(40).div_ceil(PRUNED_TOGETHER) {
        let threads: Vec<String> = (0..PRUNED_TOGETHER).map(|index| format!("t{round}_{index}")).collect();
        let mut earlier = Vec::new();
        for thread in &threads {
            earlier.push(with_an_ended_run(client, thread, "waiting_approval").await);
        }
        let mut posts = tokio::task::JoinSet::new();
        for (index, thread) in threads.iter().cloned().enumerate() {
            let client = client.clone();
            posts.spawn(async move { (index, say(&client, &thread, "reject").await) });
        }
        let pruned = async {
            // About as long as the messages take to arrive.
            for _ in 0..round % 4 {
                client.get("/healthz").await;
            }
            test_server.prune().await
        };
        let (pruned, posted) = tokio::join!(pruned, posts.join_all());
        let mut gone = 0;
        for (index, posted) in posted {
            let (thread, path) = (&threads[index], format!("/v1/threads/{}", threads[index]));
            let shown = client.get(&path).await;
            if posted.status == 404 {
                posted.refused(404, "THREAD_NOT_FOUND");
                shown.refused(404, "THREAD_NOT_FOUND");
                gone += 1;
                continue;
            }
            let run = run_of(posted);
            soon(client.run_reaches(&run, "waiting_approval")).await;
            assert_eq!(shown.ok(200)["metadata"], json!({"kept": true}), "round {round}, {thread}");
            let said = client.get(&format!("{path}/messages")).await.ok(200);
            let runs: Vec<&Value> =
                said["messages"].as_array().unwrap().iter().map(|one| &one["run_id"]).collect();
            for known in [&earlier[index], &run] {
                assert!(
                    runs.contains(&&json!(known)),
                    "round {round}, {thread}: {known} is missing in {said}"
                );
            }
            end(client, &run).await;
            assert_eq!(client.delete(&path).await.status, 204);
        }
        assert_eq!(pruned, gone, "round {round}: what was pruned is gone, and nothing else");
    }
}

async fn end(client: &Client, run: &str) {
    client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    soon(client.run_reaches(run, "interrupted")).await;
}

async fn of_several_superseding_messages_the_last_one_runs(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let is_settled = |run: &Value| run["status"] == "waiting_approval" || run["ended_at"].is_string();
    for round in 0..rounds(10) {
        let thread = format!("t{round}");
        client.post("/v1/threads", json!({"id": thread})).await.ok(201);
        let mut runs = vec![run_of(say(client, &thread, "reject").await)];
        soon(client.run_reaches(&runs[0], "waiting_approval")).await;
        runs.push(run_of(say(client, &thread, "enqueue").await));
        let at_once = tokio::join!(
            say(client, &thread, "interrupt"),
            say(client, &thread, "interrupt"),
            say(client, &thread, "interrupt"),
        );
        runs.extend([at_once.0, at_once.1, at_once.2].map(run_of));
        let last_is_known = round % 2 == 0;
        if last_is_known {
            runs.push(run_of(say(client, &thread, "interrupt").await));
        }
        // Of those that wait for an approval all but one are about to be interrupted.
        for run in &runs {
            soon(client.run_until(run, is_settled)).await;
        }
        let mut left = Vec::new();
        let shown = client.get(&format!("/v1/threads/{thread}")).await.ok(200);
        for run in &runs {
            if shown["active_run_id"] == json!(run) {
                left.push(run);
            } else {
                check_superseded(client, &soon(client.run_reaches(run, "interrupted")).await).await;
            }
        }
        assert_eq!(left.len(), 1, "round {round}: one run is left");
        assert!(!last_is_known || left[0] == runs.last().unwrap(), "round {round}: it is the last one");
    }
}

/// A run that was superseded while it was queued has never started.
async fn check_superseded(client: &Client, run: &Value) {
    assert_eq!((&run["status"], &run["termination"]["code"]), (&json!("interrupted"), &json!("superseded")));
    let log = client.log(run["id"].as_str().unwrap()).await;
    assert_eq!(kinds(&log).contains(&"run.started"), run["started_at"].is_string());
}

async fn a_queue_with_room_takes_every_message(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    for round in 0..rounds(100).div_ceil(100) {
        let thread = format!("t{round}");
        client.post("/v1/threads", json!({"id": thread})).await.ok(201);
        let front = run_of(say(client, &thread, "reject").await);
        soon(client.run_reaches(&front, "waiting_approval")).await;
        let mut posts = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (client, thread) = (client.clone(), thread.clone());
            posts.spawn(async move { say(&client, &thread, "enqueue").await });
        }
        for posted in posts.join_all().await {
            assert_eq!(posted.ok(202)["status"], "queued");
        }
        let details = say(client, &thread, "enqueue").await.refused(409, "QUEUE_FULL");
        assert_eq!(details["queued_max"], 100);
        let last = run_of(say(client, &thread, "interrupt").await);
        soon(client.run_reaches(&last, "waiting_approval")).await;
    }
}
