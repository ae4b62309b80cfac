//! What of the REST contract the other stories leave out.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use models::scripted::Reply;
use serde_json::{Value, json};

use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores};

on_all_stores! {
    d11_what_is_pending_when_a_run_ends_is_closed_with_the_time;
    d13_d43_each_write_of_an_answer_is_held_and_each_read_runs;
    d43_a_policy_holds_the_whole_answer;
    d31_every_type_of_event_comes_when_its_time_has_come;
}

fn calls() -> Reply {
    Reply::call("r", "echo", json!({"text": "read"}))
        .and_call("w", "write_file", json!({"path": "note.txt", "text": "written"}))
        .and_call("c", "count", json!({}))
}

async fn pending(test_server: &TestServer, run: &str, count: usize) -> Vec<String> {
    let so = |seen: &Value| {
        seen["status"] == "waiting_approval"
            && seen["pending"].as_array().is_some_and(|all| all.len() == count)
    };
    let held = test_server.client.run_until(run, so).await;
    let id = |held: &Value| held["approval_id"].as_str().expect("a person is asked").to_owned();
    held["pending"].as_array().expect("a list").iter().map(id).collect()
}

async fn d11_what_is_pending_when_a_run_ends_is_closed_with_the_time(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [calls(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    let approvals = pending(&test_server, &run, 2).await;
    client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    let ended = client.run_reaches(&run, "interrupted").await;
    assert_eq!(ended["pending"], json!([]));
    for approval in approvals {
        let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
        assert_eq!((&shown["status"], &shown["decided_by"]), (&json!("rejected"), &json!("system")));
        assert_eq!(shown["decided_at"], ended["ended_at"], "{shown}");
    }
    assert_eq!(client.get("/v1/approvals").await.ok(200)["approvals"], json!([]));
}

async fn d13_d43_each_write_of_an_answer_is_held_and_each_read_runs(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [calls(), Reply::text("Done.")]).build().await;
    let run = test_server.client.begin_run("go").await;
    pending(&test_server, &run, 2).await;
    let shown = test_server.client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    let statuses: Vec<&Value> =
        shown["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!(statuses, ["succeeded", "suspended", "suspended"]);
    let listed = test_server.client.get(&format!("/v1/approvals?run_id={run}")).await.ok(200);
    let approvals = listed["approvals"].as_array().unwrap().iter();
    // They were asked for in the same commit, and neither is older than the other.
    let tools: BTreeSet<&str> = approvals.map(|approval| approval["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, BTreeSet::from(["count", "write_file"]), "one approval for each");
    assert_eq!((test_server.note(), test_server.count()), (None, 0), "nothing was written");
}

async fn d43_a_policy_holds_the_whole_answer(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [calls(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"approval": "all_tools"}});
    let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    for approval in pending(&test_server, run, 3).await {
        client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    }
    client.run_reaches(run, "completed").await;
    assert_eq!((test_server.note().as_deref(), test_server.count()), (Some("written"), 1));
}

async fn d31_every_type_of_event_comes_when_its_time_has_come(store_kind: StoreKind) {
    let slow = Reply::text("a long answer").delta_chars(NonZeroUsize::MIN).after(Duration::from_millis(10));
    let test_server = TestPlan::new(store_kind, [calls(), slow]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("go").await;
    let approvals = pending(&test_server, &run, 2).await;
    let stream = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    client.post_nothing(&format!("/v1/approvals/{}/approve", approvals[0])).await.ok(200);
    let no = json!({"then": "continue"});
    client.post(&format!("/v1/approvals/{}/reject", approvals[1]), no).await.ok(200);
    let seen: BTreeSet<String> = stream.rest().await.into_iter().map(|frame| frame.event).collect();
    let types = [
        "run.started",
        "text.delta",
        "tool.approval_requested",
        "tool.approved",
        "tool.denied",
        "tool.execution_succeeded",
        "run.completed",
    ];
    for kind in types {
        assert!(seen.contains(kind), "{kind} is not in {seen:?}");
    }
    let interrupted = client.begin_run("go").await;
    pending(&test_server, &interrupted, 2).await;
    client.post_nothing(&format!("/v1/runs/{interrupted}/interrupt")).await.ok(202);
    client.run_reaches(&interrupted, "interrupted").await;
    assert_eq!(client.log(&interrupted).await.last().unwrap()["type"], "run.interrupted");

    let failing = TestPlan::new(store_kind, [Reply::error(401, "no such key")]).build().await;
    let failed = failing.client.begin_run("hello").await;
    failing.client.run_reaches(&failed, "failed").await;
    assert_eq!(failing.client.log(&failed).await.last().unwrap()["type"], "run.failed");
}
