//! Interrupts, from every state that a run can be in.

use engine::Settings;
use engine::store::Tenant;
use machine::event::InterruptCause;
use machine::inbox::{Item, Refusal, Verdict};
use serde_json::{Value, json};

use crate::client::{Client, kinds};
use crate::probe_store::BlockPoint;
use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores};
use models::scripted::Reply;

on_all_stores! {
    b50_a_second_interrupt_is_already_applied_while_the_first_is_pending;
    d5_what_has_ended_is_never_changed_again;
    d3_d16_d26_a_waiting_run_is_interrupted_and_its_approvals_close;
    d6_a_queued_run_is_interrupted_and_never_starts;
    d16_d24_a_running_run_is_interrupted_without_waiting_for_its_tool;
    d5_d24_an_ended_run_stays_as_it_is;
}

async fn d3_d16_d26_a_waiting_run_is_interrupted_and_its_approvals_close(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
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
    assert_eq!(test_server.note(), None);
    let log = client.log(&run).await;
    assert!(kinds(&log).ends_with(&["run.interrupted"]), "{:?}", kinds(&log));
    assert!(kinds(&log).contains(&"run.interrupting"));
}

async fn d6_a_queued_run_is_interrupted_and_never_starts(store_kind: StoreKind) {
    let block = Reply::call("b", "block", json!({}));
    let mut plan = TestPlan::new(store_kind, [block, Reply::text("Done.")]);
    plan.settings = Settings { running_runs_max: 1, ..Settings::default() };
    let test_server = plan.build().await;
    let client = &test_server.client;
    let running = client.begin_run("block").await;
    test_server.begun.notified().await;
    let queued = client.begin_run("block too").await;
    assert_eq!(client.get(&format!("/v1/runs/{queued}")).await.ok(200)["status"], "queued");
    let answer = client.post_nothing(&format!("/v1/runs/{queued}/interrupt")).await.ok(202);
    assert!(["interrupting", "interrupted"].contains(&answer["status"].as_str().unwrap()), "{answer}");
    client.run_reaches(&queued, "interrupted").await;
    test_server.gate.notify_one();
    client.run_reaches(&running, "completed").await;
    let log = client.log(&queued).await;
    assert!(!kinds(&log).contains(&"run.started") && !kinds(&log).contains(&"tool.execution_started"));
}

async fn d16_d24_a_running_run_is_interrupted_without_waiting_for_its_tool(store_kind: StoreKind) {
    let block = Reply::call("b", "block", json!({}));
    let test_server = TestPlan::new(store_kind, [block, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("block").await;
    test_server.begun.notified().await;
    let path = format!("/v1/runs/{run}/interrupt");
    client.post_nothing(&path).await.ok(202);
    let again = client.post(&path, json!({})).await;
    assert!([200, 202].contains(&again.status), "a repeat is harmless: {again:?}");
    let ended = client.run_reaches(&run, "interrupted").await;
    assert_eq!(ended["termination"]["reason"], "cancelled");
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["status"], "cancelled");
}

async fn d5_d24_an_ended_run_stays_as_it_is(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("hello").await;
    let before = client.run_reaches(&run, "completed").await;
    let answer = client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(200);
    assert_eq!(answer, before);
    client.post_nothing("/v1/runs/run_none/interrupt").await.refused(404, "RUN_NOT_FOUND");
}

/// Another node has accepted an interrupt, and the worker of the run has not processed it when the next ones come.
async fn b50_a_second_interrupt_is_already_applied_while_the_first_is_pending(store_kind: StoreKind) {
    let block = Reply::call("b", "block", json!({}));
    let test_server = TestPlan::new(store_kind, [block, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("block").await;
    test_server.begun.notified().await;
    let barrier = test_server.probe.block_at(BlockPoint::Append);
    test_server.gate.notify_one();
    barrier.wait_for_arrival().await;
    let elsewhere = async || {
        let item = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
        test_server.engine.store().submit(&Tenant::default(), &run.as_str().into(), item).await
    };
    // The verdict on the second one says that the first is pending.
    for verdict in [Verdict::Accepted, Verdict::AlreadyApplied] {
        assert_eq!(elsewhere().await, Ok(verdict));
        assert_eq!(client.get(&format!("/v1/runs/{run}")).await.ok(200)["status"], "interrupting");
    }
    test_server.probe.unblock();
    barrier.release_one();
    let ended = client.run_until(&run, |seen| seen["ended_at"].is_string()).await;
    // Nothing is left to interrupt.
    let after = client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(200);
    assert_eq!((after, elsewhere().await), (ended, Ok(Verdict::Refused(Refusal::RunOver))));
}

/// Everything that is shown of a run.
async fn snapshot(client: &Client, run: &str, approval: Option<&str>) -> Vec<Value> {
    let mut all = Vec::new();
    for what in ["", "/calls", "/state", "/transcript"] {
        all.push(client.get(&format!("/v1/runs/{run}{what}")).await.ok(200));
    }
    all.push(Value::Array(client.log(run).await));
    if let Some(approval) = approval {
        all.push(client.get(&format!("/v1/approvals/{approval}")).await.ok(200));
    }
    all
}

/// Says everything to an ended run that anyone may say to a run.
async fn nothing_changes(test_server: &TestServer, run: &str, approval: Option<&str>) {
    let client = &test_server.client;
    let before = snapshot(client, run, approval).await;
    let status = before[0]["status"].clone();
    assert_eq!(client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(200), before[0]);
    for decision in [
        json!({"call_id": "call_0", "action": "resume"}),
        json!({"call_id": "call_0", "action": "cancel"}),
        json!({"call_id": "call_0", "action": "resume", "result": "late"}),
    ] {
        let path = format!("/v1/runs/{run}/decisions");
        let answer = client.post(&path, json!({"decisions": [decision]})).await.ok(200);
        let outcome = &answer["results"][0]["outcome"];
        assert!(["conflict", "not_found", "invalid"].contains(&outcome.as_str().unwrap()), "{answer}");
    }
    if let Some(approval) = approval {
        for verb in ["approve", "reject"] {
            let path = format!("/v1/approvals/{approval}/{verb}");
            client.post_nothing(&path).await.refused(409, "APPROVAL_NOT_PENDING");
        }
    }
    // The thread continues without it.
    let thread = before[0]["thread_id"].as_str().unwrap();
    let body = json!({"agent": "assistant", "text": "again", "on_busy": "interrupt"});
    let next = client.post(&format!("/v1/threads/{thread}/messages"), body).await.ok(202);
    let next = next["run_id"].as_str().unwrap().to_owned();
    client.run_until(&next, |seen| seen["status"] != "queued" && seen["status"] != "running").await;
    client.post_nothing(&format!("/v1/runs/{next}/interrupt")).await;
    assert_eq!(snapshot(client, run, approval).await, before, "{status}");
}

async fn d5_what_has_ended_is_never_changed_again(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    for (verb, status) in [("approve", "completed"), ("reject", "completed"), ("interrupt", "interrupted")] {
        let (run, approval) = client.begin_held_run("write it").await;
        let path = match verb {
            "interrupt" => format!("/v1/runs/{run}/interrupt"),
            verb => format!("/v1/approvals/{approval}/{verb}"),
        };
        assert!([200, 202].contains(&client.post_nothing(&path).await.status));
        client.run_reaches(&run, status).await;
        nothing_changes(&test_server, &run, Some(&approval)).await;
    }
    let test_server = TestPlan::new(store_kind, [Reply::error(401, "no such key")]).build().await;
    let failed = test_server.client.begin_run("hello").await;
    test_server.client.run_reaches(&failed, "failed").await;
    nothing_changes(&test_server, &failed, None).await;
}
