//! Interrupts, from every state that a run can be in.

use engine::Settings;
use serde_json::json;

use crate::client::kinds;
use crate::stage::{Kept, Plan, on_both_stores};
use models::scripted::Reply;

on_both_stores! {
    d3_d16_d26_a_waiting_run_is_interrupted_and_its_approvals_close;
    d6_a_queued_run_is_interrupted_and_never_starts;
    d16_d24_a_running_run_is_interrupted_without_waiting_for_its_tool;
    d5_d24_an_ended_run_stays_as_it_is;
}

async fn d3_d16_d26_a_waiting_run_is_interrupted_and_its_approvals_close(kept: Kept) {
    let stage = Plan::one_write(kept).build().await;
    let client = &stage.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/runs/{run}/interrupt");
    let first = client.post_nothing(&path).await.ok(202);
    assert!(["interrupting", "interrupted"].contains(&first["status"].as_str().unwrap()), "{first}");
    let ended = client.run_reaches(&run, "interrupted").await;
    assert_eq!((&ended["termination"]["reason"], &ended["pending"]), (&json!("cancelled"), &json!([])));
    let closed = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!((&closed["status"], &closed["decided_by"]), (&json!("rejected"), &json!("system")));
    assert!(closed["decided_at"].is_string());
    for verb in ["approve", "reject"] {
        client
            .post_nothing(&format!("/v1/approvals/{approval}/{verb}"))
            .await
            .refused(409, "APPROVAL_NOT_PENDING");
    }
    assert_eq!(stage.note(), None);
    let log = client.log(&run).await;
    assert!(kinds(&log).ends_with(&["run.interrupted"]), "{:?}", kinds(&log));
    assert!(kinds(&log).contains(&"run.interrupting"));
}

async fn d6_a_queued_run_is_interrupted_and_never_starts(kept: Kept) {
    let block = Reply::call("b", "block", json!({}));
    let mut plan = Plan::new(kept, [block, Reply::text("Done.")]);
    plan.settings = Settings { running_runs_max: 1, ..Settings::default() };
    let stage = plan.build().await;
    let client = &stage.client;
    let running = client.begin_run("block").await;
    stage.begun.notified().await;
    let queued = client.begin_run("block too").await;
    assert_eq!(client.get(&format!("/v1/runs/{queued}")).await.ok(200)["status"], "queued");
    let answer = client.post_nothing(&format!("/v1/runs/{queued}/interrupt")).await.ok(202);
    assert!(["interrupting", "interrupted"].contains(&answer["status"].as_str().unwrap()), "{answer}");
    client.run_reaches(&queued, "interrupted").await;
    stage.gate.notify_one();
    client.run_reaches(&running, "completed").await;
    let log = client.log(&queued).await;
    assert!(!kinds(&log).contains(&"run.started") && !kinds(&log).contains(&"tool.execution_started"));
}

async fn d16_d24_a_running_run_is_interrupted_without_waiting_for_its_tool(kept: Kept) {
    let block = Reply::call("b", "block", json!({}));
    let stage = Plan::new(kept, [block, Reply::text("Done.")]).build().await;
    let client = &stage.client;
    let run = client.begin_run("block").await;
    stage.begun.notified().await;
    let path = format!("/v1/runs/{run}/interrupt");
    client.post_nothing(&path).await.ok(202);
    let again = client.post(&path, json!({})).await;
    assert!([200, 202].contains(&again.status), "a repeat is harmless: {again:?}");
    let ended = client.run_reaches(&run, "interrupted").await;
    assert_eq!(ended["termination"]["reason"], "cancelled");
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["status"], "cancelled");
}

async fn d5_d24_an_ended_run_stays_as_it_is(kept: Kept) {
    let stage = Plan::new(kept, [Reply::text("Done.")]).build().await;
    let client = &stage.client;
    let run = client.begin_run("hello").await;
    let before = client.run_reaches(&run, "completed").await;
    let answer = client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(200);
    assert_eq!(answer, before);
    client.post_nothing("/v1/runs/run_none/interrupt").await.refused(404, "RUN_NOT_FOUND");
}
