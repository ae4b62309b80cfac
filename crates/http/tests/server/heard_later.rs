//! Decisions that are accepted while their run is busy, and heard when it comes to a boundary.

use std::time::Duration;

use models::scripted::Reply;
use serde_json::json;

use crate::client::Client;
use crate::stage::{Kept, Plan, Stage, on_both_stores};

on_both_stores! {
    a_decision_that_is_heard_later_is_answered_now;
    a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_heard;
    an_approval_that_came_behind_a_rejection_which_ends_the_run_is_refused;
}

/// A run whose calls `c` and `e` are held while `b` executes. It hears decisions when `b` has come back.
async fn busy(kept: Kept, decided_time: Duration) -> (Stage, String, Vec<String>) {
    let calls = Reply::call("c", "count", json!({})).and_call("e", "count", json!({})).and_call(
        "b",
        "block",
        json!({}),
    );
    let mut plan = Plan::new(kept, [calls, Reply::text("Done.")]);
    plan.limits.decided_time = decided_time;
    let stage = plan.build().await;
    let client = &stage.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    stage.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    assert_eq!(held["status"], "running", "the third call executes");
    let approvals = held["pending"].as_array().unwrap().iter();
    let approvals = approvals.map(|held| held["approval_id"].as_str().unwrap().to_owned()).collect();
    (stage, run, approvals)
}

/// Whoever approves other arguments than are held decides nothing, and hears whether somebody else has.
async fn is_decided(client: &Client, approval: &str) {
    let (path, body) =
        (format!("/v1/approvals/{approval}/approve"), json!({"expect_digest": "0".repeat(64)}));
    while !client.post(&path, body.clone()).await.text.contains("APPROVAL_NOT_PENDING") {}
}

async fn a_decision_that_is_heard_later_is_answered_now(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    for approval in &approvals {
        let path = format!("/v1/approvals/{approval}/approve");
        let decided = client.post_nothing(&path).await.ok(200);
        assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("approved"), &json!("anonymous")));
        client.post_nothing(&path).await.refused(409, "APPROVAL_NOT_PENDING");
    }
    stage.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 2);
}

async fn a_decision_on_a_tool_that_has_changed_is_refused_before_it_is_heard(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_millis(50)).await;
    let client = &stage.client;
    stage.change_tool("count").await;
    let path = format!("/v1/approvals/{}/approve", approvals[0]);
    client.post_nothing(&path).await.refused(409, "TOOL_CHANGED");
    stage.gate.notify_one();
    let held = client.run_until(&run, |seen| seen["status"] == "waiting_approval").await;
    assert_eq!(held["pending"].as_array().unwrap().len(), 2, "{held}");
    assert_ne!(held["pending"][0]["approval_id"], json!(approvals[0]), "it is held again");
    assert_eq!(stage.count(), 0);
}

async fn an_approval_that_came_behind_a_rejection_which_ends_the_run_is_refused(kept: Kept) {
    let (stage, run, approvals) = busy(kept, Duration::from_secs(60)).await;
    let post = |path: String| {
        let client = stage.client.clone();
        tokio::spawn(async move { client.post_nothing(&path).await })
    };
    let rejected = post(format!("/v1/approvals/{}/reject", approvals[0]));
    is_decided(&stage.client, &approvals[0]).await;
    let approved = post(format!("/v1/approvals/{}/approve", approvals[1]));
    is_decided(&stage.client, &approvals[1]).await;
    stage.gate.notify_one();
    assert_eq!(rejected.await.unwrap().ok(200)["status"], "rejected");
    approved.await.unwrap().refused(409, "APPROVAL_NOT_PENDING");
    stage.client.run_reaches(&run, "completed").await;
    assert_eq!(stage.count(), 0);
}
