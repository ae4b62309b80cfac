//! Concurrent requests: one of them wins, and every response says which.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Answer;
use crate::test_server::{StoreKind, TestPlan, on_all_stores};
use models::scripted::Reply;

on_all_stores! {
    d17_d21_of_a_hundred_messages_one_starts_a_run;
    d39_of_fifty_approvals_and_fifty_rejections_one_counts;
    d39_a_yes_and_an_interrupt_at_once_run_the_tool_at_most_once;
}

async fn all(asked: impl IntoIterator<Item = impl Future<Output = Answer> + Send + 'static>) -> Vec<Answer> {
    let mut set: JoinSet<Answer> = asked.into_iter().collect();
    let mut answers = Vec::new();
    while let Some(answer) = set.join_next().await {
        answers.push(answer.expect("no request panics"));
    }
    answers
}

fn by_status(answers: &[Answer]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.status).or_default() += 1;
    }
    counts
}

async fn d17_d21_of_a_hundred_messages_one_starts_a_run(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    test_server.client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let answers = all((0..100).map(|number| {
        let client = test_server.client.clone();
        let body = json!({"agent": "assistant", "text": format!("write {number}")});
        async move { client.post("/v1/threads/t/messages", body).await }
    }))
    .await;
    assert_eq!(by_status(&answers), BTreeMap::from([(202, 1), (409, 99)]));
    let won: Vec<Value> = answers.iter().filter(|answer| answer.status == 202).map(Answer::json).collect();
    for lost in answers.into_iter().filter(|answer| answer.status == 409) {
        let details = lost.refused(409, "ACTIVE_RUN_EXISTS");
        assert_eq!(details["run_id"], won[0]["run_id"]);
        let status = details["status"].as_str().unwrap();
        assert!(["queued", "running", "waiting_approval"].contains(&status), "{status}");
    }
    assert_eq!(test_server.client.get("/v1/runs").await.ok(200)["runs"].as_array().unwrap().len(), 1);
}

async fn d39_of_fifty_approvals_and_fifty_rejections_one_counts(store_kind: StoreKind) {
    let replies = [Reply::call("c", "count", json!({})), Reply::text("Done.")];
    let test_server = TestPlan::new(store_kind, replies).build().await;
    let (run, approval) = test_server.client.begin_held_run("count").await;
    let answers = all((0..100).map(|number| {
        let client = test_server.client.clone();
        let verb = if number % 2 == 0 { "approve" } else { "reject" };
        let path = format!("/v1/approvals/{approval}/{verb}");
        async move { client.post_nothing(&path).await }
    }))
    .await;
    assert_eq!(by_status(&answers), BTreeMap::from([(200, 1), (409, 99)]));
    test_server.client.run_reaches(&run, "completed").await;
    let won = answers.iter().find(|answer| answer.status == 200).expect("one wins").json();
    let shown = test_server.client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!(won["status"], shown["status"]);
    assert_eq!(test_server.count(), u32::from(shown["status"] == "approved"));
    for lost in answers.into_iter().filter(|answer| answer.status == 409) {
        lost.refused(409, "APPROVAL_NOT_PENDING");
    }
}

async fn d39_a_yes_and_an_interrupt_at_once_run_the_tool_at_most_once(store_kind: StoreKind) {
    for _ in 0..10 {
        let replies = [Reply::call("c", "count", json!({})), Reply::text("Done.")];
        let test_server = TestPlan::new(store_kind, replies).build().await;
        let (run, approval) = test_server.client.begin_held_run("count").await;
        let paths = [format!("/v1/approvals/{approval}/approve"), format!("/v1/runs/{run}/interrupt")];
        let answers = all(paths.map(|path| {
            let client = test_server.client.clone();
            async move { client.post_nothing(&path).await }
        }))
        .await;
        assert!(answers.iter().all(|answer| [200, 202, 409].contains(&answer.status)), "{answers:?}");
        test_server.client.run_until(&run, |seen| seen["ended_at"].is_string()).await;
        let approved =
            answers.iter().any(|answer| answer.status == 200 && answer.json()["status"] == "approved");
        assert!(test_server.count() <= u32::from(approved), "it ran without a yes that counted");
    }
}
