//! Requests to one thread at the same time: a deletion beside a message, and many messages at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Client, kinds};
use crate::stage::{Kept, Plan, on_all_stores};

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

async fn a_message_beside_the_deletion_of_its_thread_never_brings_it_back(kept: Kept) {
    let stage = Plan::one_write(kept).build().await;
    let client = &stage.client;
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

async fn a_thread_is_created_beside_its_deletion(kept: Kept) {
    let stage = Plan::one_write(kept).build().await;
    let client = &stage.client;
    let create = || client.post("/v1/threads", json!({"id": "t"}));
    for round in 0..rounds(100) {
        let (first, second, _) = tokio::join!(create(), create(), client.delete("/v1/threads/t"));
        for created in [first, second] {
            assert!(matches!(created.status, 200 | 201), "round {round}: {}", created.text);
        }
    }
}

async fn of_several_superseding_messages_the_last_one_runs(kept: Kept) {
    let stage = Plan::one_write(kept).build().await;
    let client = &stage.client;
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

async fn a_queue_with_room_takes_every_message(kept: Kept) {
    let stage = Plan::one_write(kept).build().await;
    let client = &stage.client;
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
