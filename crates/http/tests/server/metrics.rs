//! The numbers of the server: each one moves when what it counts happens, and has a line in the documentation.

use std::collections::BTreeSet;
use std::time::Duration;

use holdpoint_http::Limits;
use models::scripted::Reply;
use serde_json::json;

use crate::test_server::{StoreKind, TestPlan, TestServer, on_both_stores};

on_both_stores! {
    every_metric_moves_with_what_it_counts;
    a_count_of_the_runs_is_kept_for_a_while;
    every_metric_has_a_line_in_the_documentation;
}

/// A run that blocks in one call and holds another. It processes decisions when nothing executes.
async fn busy(test_server: &TestServer) -> (String, String) {
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "busy"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"decisions": "at_boundary"}});
    let posted = client.post("/v1/threads/busy/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().expect("an id").to_owned();
    test_server.begun.notified().await;
    let held = client.run_until(&run, |seen| seen["pending"][0]["approval_id"].is_string()).await;
    (run, held["pending"][0]["approval_id"].as_str().expect("an id").to_owned())
}

fn plan(store_kind: StoreKind) -> TestPlan {
    let calls = Reply::call("c", "count", json!({})).and_call("b", "block", json!({}));
    let mut plan = TestPlan::new(store_kind, [calls, Reply::text("Done.")]);
    plan.limits = Limits {
        run_counts_age_max: Duration::ZERO,
        decision_timeout: Duration::from_millis(20),
        ..Limits::default()
    };
    plan
}

async fn every_metric_moves_with_what_it_counts(store_kind: StoreKind) {
    let test_server = plan(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = busy(&test_server).await;
    assert_eq!(test_server.number("holdpoint_runs{status=\"running\"}").await, 1.0);
    assert_eq!(test_server.number("holdpoint_runs_in_memory").await, 1.0);
    assert_eq!(test_server.number("holdpoint_inbox_items").await, 0.0);
    let stream = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    assert_eq!(test_server.number("holdpoint_open_streams").await, 1.0);
    drop(stream);

    // Accepted, and not processed while the other call executes.
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    assert_eq!(test_server.number("holdpoint_inbox_items").await, 1.0);
    assert_eq!(test_server.number("holdpoint_approved_not_started").await, 1.0);
    assert_eq!(test_server.number("holdpoint_decision_to_start_seconds_count").await, 0.0);

    test_server.gate.notify_one();
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.number("holdpoint_approved_not_started").await, 0.0);
    assert_eq!(test_server.number("holdpoint_inbox_items").await, 0.0);
    assert_eq!(test_server.number("holdpoint_runs{status=\"running\"}").await, 0.0);
    assert_eq!(test_server.number("holdpoint_runs_ended_total{status=\"completed\"}").await, 1.0);
    assert_eq!(test_server.number("holdpoint_decision_to_start_seconds_count").await, 1.0);
    assert_eq!(test_server.number("holdpoint_tool_seconds_count{tool=\"count\"}").await, 1.0);
    assert_eq!(test_server.number("holdpoint_tool_seconds_count{tool=\"block\"}").await, 1.0);
    assert_eq!(test_server.number("holdpoint_step_seconds_count").await, 2.0);
    assert!(test_server.number("holdpoint_step_seconds_sum").await > 0.0, "the first waited for a decision");
    assert_eq!(test_server.number("holdpoint_step_seconds_bucket{le=\"+Inf\"}").await, 2.0);

    // The next call that would block finds that it need not.
    test_server.gate.notify_one();
    let (waiting, _) = client.begin_held_run("again").await;
    assert_eq!(test_server.number("holdpoint_runs{status=\"waiting_approval\"}").await, 1.0);
    client.post_nothing(&format!("/v1/runs/{waiting}/interrupt")).await.ok(202);
    client.run_reaches(&waiting, "interrupted").await;
    assert_eq!(test_server.number("holdpoint_runs_ended_total{status=\"interrupted\"}").await, 1.0);

    assert!(test_server.number("holdpoint_store_commits_total").await >= 5.0);
    if store_kind == StoreKind::Sqlite {
        let commits = test_server.number("holdpoint_store_commits_total").await;
        assert_eq!(test_server.number("holdpoint_store_batch_commits_sum").await, commits);
        assert!(test_server.number("holdpoint_store_bytes_total").await > 0.0);
        let syncs = test_server.number("holdpoint_store_syncs_total").await;
        assert_eq!(test_server.number("holdpoint_store_sync_seconds_count").await, syncs);
        assert!(test_server.number("holdpoint_store_sync_seconds_sum").await > 0.0);
    }
}

async fn a_count_of_the_runs_is_kept_for_a_while(store_kind: StoreKind) {
    let mut plan = TestPlan::one_write(store_kind);
    plan.limits.run_counts_age_max = Duration::from_secs(3_600);
    let test_server = plan.build().await;
    let waiting = "holdpoint_runs{status=\"waiting_approval\"}";
    assert_eq!(test_server.number(waiting).await, 0.0);
    test_server.client.begin_held_run("write it").await;
    assert_eq!(test_server.number(waiting).await, 0.0, "the last count is not that old");
}

/// What is shown and what is written down are the same names.
async fn every_metric_has_a_line_in_the_documentation(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let (_, approval) = test_server.client.begin_held_run("write it").await;
    test_server.client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    test_server.client.get("/v1/runs/none").await.refused(404, "RUN_NOT_FOUND");
    let shown = test_server.client.get("/metrics").await.text;
    let shown: BTreeSet<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../../docs/operations.md");
    let described: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `holdpoint_")?.split(['`', '{']).next())
        .collect();
    let shown: BTreeSet<&str> =
        shown.into_iter().filter_map(|name| name.strip_prefix("holdpoint_")).collect();
    let described: BTreeSet<&str> =
        described.into_iter().map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    assert_eq!(shown, described);
    assert!(shown.len() > 15, "{shown:?}");
}
