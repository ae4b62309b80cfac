//! From a message to the end of its run: approved, rejected, asked, remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::agent::Agent;
use engine::tool::{Approval, FunctionTool, IntoOutcome, OnExpiry, Outcome, ToolDefinition, ToolRequest};
use serde_json::{Value, json};

use crate::client::kinds;
use crate::test_server::{StoreKind, TestPlan, on_all_stores, write_call};
use models::scripted::Reply;

on_all_stores! {
    d1_d2_d14_d33_an_approved_call_runs_and_the_same_run_continues;
    d12_d20_a_message_starts_a_run_and_a_bad_one_does_not;
    d15_d34_a_rejected_call_ends_the_run_by_default;
    d15_a_run_may_continue_after_a_rejected_call;
    d21_a_thread_is_busy_until_its_run_has_ended;
    d25_d9_an_approval_is_decided_once;
    d27_approvals_are_listed_oldest_first_and_only_while_pending;
    d28_a_grant_for_the_future_lets_later_calls_through;
    d37_several_held_calls_are_decided_in_any_order;
    d38_one_rejection_closes_the_other_approvals;
    d42_a_failed_provider_fails_the_run;
    edited_arguments_are_what_runs_and_what_is_shown;
    a_call_in_doubt_is_retried_settled_or_given_up;
    an_expired_approval_cannot_be_decided;
    d44_d10_a_message_that_meets_a_waiting_run_may_wait_or_take_over;
    a10_messages_and_calls_of_a_run_can_be_read;
    a_thread_is_deleted_with_everything_of_it;
}

async fn d1_d2_d14_d33_an_approved_call_runs_and_the_same_run_continues(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;

    let held = client.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(held["pending"][0]["kind"], "approval");
    assert_eq!((&held["started_at"].is_string(), &held["ended_at"]), (&true, &json!(null)));
    assert_eq!(test_server.note(), None, "nothing is written before a person approves");
    let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!(shown["arguments"], json!({"path": "note.txt", "text": "written"}));
    assert_eq!((&shown["status"], &shown["run_id"]), (&json!("pending"), &json!(run)));
    assert!(shown["tool_description"].as_str().is_some_and(|text| !text.is_empty()), "{shown}");

    let body = json!({"expect_digest": shown["arguments_digest"], "note": "looks right"});
    let decided = client.post(&format!("/v1/approvals/{approval}/approve"), body).await.ok(200);
    assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("approved"), &json!("anonymous")));
    assert_eq!(decided["note"], "looks right");
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!((&ended["id"], &ended["termination"]), (&json!(run), &json!({"reason": "natural_end"})));
    assert_eq!((&ended["pending"], &ended["error"]), (&json!([]), &json!(null)));
    assert!(ended["ended_at"].is_string());
    assert_eq!(test_server.note().as_deref(), Some("written"));

    let log = client.log(&run).await;
    let expected = [
        "run.queued",
        "run.started",
        "message.added",
        "step.started",
        "message.added",
        "tool.requested",
        "tool.approval_requested",
        "run.waiting",
        "tool.approved",
        "run.resumed",
        "tool.execution_started",
        "tool.execution_succeeded",
        "message.added",
        "step.ended",
        "step.started",
        "message.added",
        "step.ended",
        "run.completed",
    ];
    assert_eq!(kinds(&log), expected);
}

async fn d12_d20_a_message_starts_a_run_and_a_bad_one_does_not(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("Hello.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t", "metadata": {"a": 1}})).await.ok(201);
    let again = client.post("/v1/threads", json!({"id": "t"})).await.ok(200);
    assert_eq!(again["metadata"], json!({"a": 1}), "it stays as it is");

    let path = "/v1/threads/t/messages";
    client.post(path, json!({"agent": "assistant", "text": "  "})).await.refused(400, "BAD_REQUEST");
    client.post(path, json!({"agent": "missing", "text": "hi"})).await.refused(404, "AGENT_NOT_FOUND");
    let nowhere = client.post("/v1/threads/none/messages", json!({"agent": "assistant", "text": "hi"})).await;
    nowhere.refused(404, "THREAD_NOT_FOUND");
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"], json!([]), "nothing was started");

    let posted = client.post(path, json!({"agent": "assistant", "text": "hi"})).await.ok(202);
    assert_eq!(posted["thread_id"], "t");
    let run = posted["run_id"].as_str().unwrap();
    client.run_reaches(run, "completed").await;
    let log = client.log(run).await;
    assert_eq!(kinds(&log)[0], "run.queued", "a run begins in the queue");
    let expected = [
        "run.queued",
        "run.started",
        "message.added",
        "step.started",
        "message.added",
        "step.ended",
        "run.completed",
    ];
    assert_eq!(kinds(&log), expected);
}

async fn d15_d34_a_rejected_call_ends_the_run_by_default(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/reject");
    let decided = client.post(&path, json!({"reason": "not today"})).await.ok(200);
    assert_eq!((&decided["status"], &decided["reason"]), (&json!("rejected"), &json!("not today")));
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!(
        (&ended["termination"]["reason"], &ended["termination"]["code"]),
        (&json!("stopped"), &json!("rejected"))
    );
    assert_eq!(test_server.note(), None);
    let log = client.log(&run).await;
    let kinds = kinds(&log);
    let denied = kinds.iter().position(|kind| *kind == "tool.denied").expect("it was denied");
    assert!(kinds.iter().position(|kind| *kind == "tool.approval_requested").unwrap() < denied);
    assert!(!kinds.contains(&"tool.execution_started"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"run.completed"));
}

async fn d15_a_run_may_continue_after_a_rejected_call(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/reject");
    client.post(&path, json!({"reason": "no", "then": "continue"})).await.ok(200);
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!(ended["termination"]["reason"], "natural_end");
    let transcript = client.get(&format!("/v1/runs/{run}/transcript")).await.ok(200);
    let read: Vec<&str> = transcript["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert!(read.contains(&"Denied by anonymous: no"), "{read:?}");
    assert_eq!(test_server.note(), None);
}

async fn d21_a_thread_is_busy_until_its_run_has_ended(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let say = || client.post("/v1/threads/t/messages", json!({"agent": "assistant", "text": "write it"}));
    let run = say().await.ok(202)["run_id"].as_str().unwrap().to_owned();
    client.run_reaches(&run, "waiting_approval").await;
    let details = say().await.refused(409, "ACTIVE_RUN_EXISTS");
    assert_eq!(details, json!({"run_id": run, "status": "waiting_approval"}));
    assert_eq!(client.get("/v1/threads/t").await.ok(200)["active_run_id"], json!(run));
    client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    client.run_reaches(&run, "interrupted").await;
    say().await.ok(202);
}

async fn d25_d9_an_approval_is_decided_once(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let path = |verb: &str| format!("/v1/approvals/{approval}/{verb}");
    client.post_nothing(&path("approve")).await.ok(200);
    for verb in ["approve", "reject"] {
        let details = client.post_nothing(&path(verb)).await.refused(409, "APPROVAL_NOT_PENDING");
        assert_eq!((&details["status"], &details["decided_by"]), (&json!("approved"), &json!("anonymous")));
    }
    client.run_reaches(&run, "completed").await;
    client.post_nothing(&path("approve")).await.refused(409, "APPROVAL_NOT_PENDING");
    for verb in ["approve", "reject"] {
        let unknown = client.post_nothing(&format!("/v1/approvals/apr_none/{verb}")).await;
        unknown.refused(404, "APPROVAL_NOT_FOUND");
    }
    let log = client.log(&run).await;
    assert_eq!(kinds(&log).iter().filter(|kind| **kind == "tool.execution_started").count(), 1);
}

async fn d27_approvals_are_listed_oldest_first_and_only_while_pending(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(client.begin_held_run("write it").await.1);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/approvals?limit=2{cursor}")).await.ok(200);
        seen.extend(page["approvals"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    // Of the same millisecond either may come first.
    let text = |shown: &Value, field: &str| shown[field].as_str().unwrap().to_owned();
    assert!(seen.is_sorted_by_key(|shown| text(shown, "created_at")));
    let ids: BTreeSet<String> = seen.iter().map(|shown| text(shown, "id")).collect();
    assert_eq!((ids, seen.len()), (all.iter().cloned().collect(), all.len()));
    client.post_nothing(&format!("/v1/approvals/{}/approve", all[1])).await.ok(200);
    let pending = client.get("/v1/approvals").await.ok(200);
    assert_eq!(pending["approvals"].as_array().unwrap().len(), 4);
    let approved = client.get("/v1/approvals?status=approved").await.ok(200);
    assert_eq!(approved["approvals"][0]["id"], json!(all[1]));
}

async fn d28_a_grant_for_the_future_lets_later_calls_through(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [write_call(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let say = || client.post("/v1/threads/t/messages", json!({"agent": "assistant", "text": "write it"}));
    let run = say().await.ok(202)["run_id"].as_str().unwrap().to_owned();
    let held = client.run_reaches(&run, "waiting_approval").await;
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    client.post(&format!("/v1/approvals/{approval}/approve"), json!({"apply_to_future": true})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let second = say().await.ok(202)["run_id"].as_str().unwrap().to_owned();
    client.run_reaches(&second, "completed").await;
    assert!(!kinds(&client.log(&second).await).contains(&"tool.approval_requested"));

    let thread = client.get("/v1/threads/t").await.ok(200);
    assert_eq!((&thread["auto_approve"], &thread["approved_tools"]), (&json!(false), &json!(["write_file"])));
    let back = client.post("/v1/threads/t/auto-approve", json!({"enabled": false})).await.ok(200);
    assert!(back.get("approved_tools").is_none(), "{back}");
    let again = say().await.ok(202)["run_id"].as_str().unwrap().to_owned();
    client.run_reaches(&again, "waiting_approval").await;
    client.post_nothing(&format!("/v1/runs/{again}/interrupt")).await;
    client.run_reaches(&again, "interrupted").await;

    client.post("/v1/threads", json!({"id": "u"})).await.ok(201);
    let on = client.post("/v1/threads/u/auto-approve", json!({"enabled": true})).await.ok(200);
    assert_eq!(on["auto_approve"], true);
    let posted =
        client.post("/v1/threads/u/messages", json!({"agent": "assistant", "text": "write it"})).await;
    let third = posted.ok(202)["run_id"].as_str().unwrap().to_owned();
    client.run_reaches(&third, "completed").await;
    let off = client.post("/v1/threads/u/auto-approve", json!({"enabled": false})).await.ok(200);
    assert_eq!(off["auto_approve"], false);
    assert_eq!(client.get("/v1/approvals").await.ok(200)["approvals"], json!([]));
}

fn three_writes() -> Reply {
    let arguments = |number: u32| json!({"by": number});
    Reply::call("a", "count", arguments(1)).and_call("b", "count", arguments(2)).and_call(
        "c",
        "count",
        arguments(3),
    )
}

async fn d37_several_held_calls_are_decided_in_any_order(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [three_writes(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("count").await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 3).await;
    let id = |place: usize| held["pending"][place]["approval_id"].as_str().unwrap().to_owned();
    client.post_nothing(&format!("/v1/approvals/{}/approve", id(2))).await.ok(200);
    client.post(&format!("/v1/approvals/{}/reject", id(0)), json!({"then": "continue"})).await.ok(200);
    client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 1).await;
    client.post_nothing(&format!("/v1/approvals/{}/approve", id(1))).await.ok(200);
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.count(), 2);
}

async fn d38_one_rejection_closes_the_other_approvals(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [three_writes(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let (run, _) = client.begin_held_run("count").await;
    let held = client.run_until(&run, |seen| seen["pending"].as_array().unwrap().len() == 3).await;
    let first = held["pending"][0]["approval_id"].as_str().unwrap();
    client.post_nothing(&format!("/v1/approvals/{first}/reject")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let rejected = client.get(&format!("/v1/approvals?status=rejected&run_id={run}")).await.ok(200);
    for shown in rejected["approvals"].as_array().unwrap() {
        let by = if shown["id"] == json!(first) { "anonymous" } else { "system" };
        assert_eq!(shown["decided_by"], json!(by));
    }
    assert_eq!(rejected["approvals"].as_array().unwrap().len(), 3);
    assert_eq!(client.get("/v1/approvals").await.ok(200)["approvals"], json!([]));
    assert_eq!(test_server.count(), 0);
}

async fn d42_a_failed_provider_fails_the_run(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::error(401, "no such key")]).build().await;
    let run = test_server.client.begin_run("hello").await;
    let ended = test_server.client.run_reaches(&run, "failed").await;
    assert_eq!(
        (&ended["error"]["code"], &ended["termination"]["reason"]),
        (&json!("MODEL_ERROR"), &json!("error"))
    );
    assert_eq!(kinds(&test_server.client.log(&run).await).last(), Some(&"run.failed"));
}

async fn edited_arguments_are_what_runs_and_what_is_shown(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/approve");
    client.post(&path, json!({"arguments": {"path": 7}})).await.refused(422, "INVALID_ARGUMENTS");
    let wrong = client.post(&path, json!({"expect_digest": "0".repeat(64)})).await;
    let details = wrong.refused(409, "DIGEST_MISMATCH");
    let before = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    let shown = before["arguments_digest"].as_str().unwrap();
    for text in ["", "wrong", &shown.to_uppercase(), &format!("{shown}0"), &before["arguments"].to_string()] {
        client.post(&path, json!({"expect_digest": text})).await.refused(409, "DIGEST_MISMATCH");
    }
    assert_eq!(
        (&before["status"], &details["arguments_digest"]),
        (&json!("pending"), &before["arguments_digest"])
    );

    let edited = json!({"path": "note.txt", "text": "edited"});
    let decided = client.post(&path, json!({"arguments": edited})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.note().as_deref(), Some("edited"));
    for shown in [decided, client.get(&format!("/v1/approvals/{approval}")).await.ok(200)] {
        assert_eq!((&shown["arguments"], &shown["original_arguments"]), (&edited, &before["arguments"]));
        assert_ne!(shown["arguments_digest"], before["arguments_digest"]);
    }
}

fn with_a_doubtful_tool(agent: Agent) -> Agent {
    let definition = ToolDefinition::new("doubt", "Its outcome is unknown").approval(Approval::Never);
    agent.tool(FunctionTool::new(definition, |request: ToolRequest| async move {
        if request.attempt == 1 {
            return Outcome::Unknown { why: "the line went dead".into(), retry_after_ms: None };
        }
        json!("done after all").into_outcome()
    }))
}

async fn a_call_in_doubt_is_retried_settled_or_given_up(store_kind: StoreKind) {
    let answers = [
        (json!({"choice": "retry"}), json!("succeeded"), json!("done after all")),
        (json!({"result": "I saw it happen"}), json!("succeeded"), json!("I saw it happen")),
        (json!({"choice": "give_up"}), json!("cancelled"), json!(null)),
    ];
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("d", "doubt", json!({"n": 1})), Reply::text("Done.")]);
    plan.change = with_a_doubtful_tool;
    let test_server = plan.build().await;
    let client = &test_server.client;
    for (answer, status, result) in answers {
        let (run, approval) = client.begin_held_run("do it").await;
        let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
        assert_eq!((&shown["kind"], &shown["choices"]), (&json!("in_doubt"), &json!(["retry", "give_up"])));
        assert_eq!(shown["arguments"], json!({"n": 1}), "what a retry would run");
        assert!(shown["arguments_digest"].as_str().is_some_and(|digest| digest.len() == 64), "{shown}");
        client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.refused(409, "WRONG_KIND");
        let path = format!("/v1/approvals/{approval}/answer");
        assert_eq!(client.post(&path, answer).await.ok(200)["status"], "answered");
        client.run_reaches(&run, "completed").await;
        let later = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
        assert_eq!(later["arguments"], shown["arguments"]);
        let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
        let call = &calls["calls"][0];
        assert_eq!((&call["status"], call.get("result").unwrap_or(&json!(null))), (&status, &result));
        assert_eq!(call["outcome_unknown"] == json!(true), status == json!("cancelled"), "{call}");
    }
}

fn with_a_brief_tool(agent: Agent) -> Agent {
    let definition = ToolDefinition::new("brief", "Waits for an answer, but not for long")
        .expires_in(Duration::from_millis(20), OnExpiry::Deny);
    agent.tool(FunctionTool::new(definition, |_: ToolRequest| async { json!("ran") }))
}

async fn an_expired_approval_cannot_be_decided(store_kind: StoreKind) {
    let mut plan = TestPlan::new(store_kind, [Reply::call("b", "brief", json!({})), Reply::text("Done.")]);
    plan.change = with_a_brief_tool;
    let test_server = plan.build().await;
    let client = &test_server.client;
    let run = client.begin_run("be quick").await;
    client.run_reaches(&run, "completed").await;
    let expired = client.get("/v1/approvals?status=expired").await.ok(200);
    let approval = &expired["approvals"][0];
    assert_eq!((&approval["decided_by"], &approval["run_id"]), (&json!("system"), &json!(run)));
    let path = format!("/v1/approvals/{}/approve", approval["id"].as_str().unwrap());
    let details = client.post_nothing(&path).await.refused(409, "APPROVAL_NOT_PENDING");
    assert_eq!(details["status"], "expired");
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["denied"], json!({"by": "system", "reason": "expired"}));
}

async fn d44_d10_a_message_that_meets_a_waiting_run_may_wait_or_take_over(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let say = async |on_busy: &str| {
        let body = json!({"agent": "assistant", "text": "write it", "on_busy": on_busy});
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned()
    };
    let first = say("reject").await;
    let held = client.run_reaches(&first, "waiting_approval").await;
    let queued = say("enqueue").await;
    assert_eq!(client.get(&format!("/v1/runs/{queued}")).await.ok(200)["status"], "queued");
    let transcript = client.get(&format!("/v1/runs/{first}/transcript")).await.ok(200);
    let users = transcript["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    assert_eq!(users.count(), 1, "what waits has not reached the model");
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    let of_run = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!((&of_run["run_id"], &of_run["thread_id"]), (&json!(first), &json!("t")));
    let over = say("interrupt").await;
    let ended = client.run_reaches(&first, "interrupted").await;
    assert_eq!(ended["termination"]["code"], "superseded");
    client.run_reaches(&over, "waiting_approval").await;
}

async fn a10_messages_and_calls_of_a_run_can_be_read(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "write it", "message_id": "m-1"});
    let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    let held = client.run_reaches(run, "waiting_approval").await;
    let state = client.get(&format!("/v1/runs/{run}/state")).await.ok(200);
    let record = &state["__run"];
    let updated_at = client.log(run).await.last().unwrap()["ts"].clone();
    assert_eq!(
        record,
        &json!({"id": run, "status": "waiting", "done_reason": null, "updated_at": updated_at})
    );
    assert_eq!(state["__tool_call_states"]["call_0"]["status"], "suspended");
    assert_eq!(state["__suspended_tool_calls"]["call_0"]["tool"], "write_file");
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(run, "completed").await;
    let state = client.get(&format!("/v1/runs/{run}/state")).await.ok(200);
    assert_eq!(
        (&state["__run"]["status"], &state["__run"]["done_reason"]),
        (&json!("done"), &json!("natural"))
    );

    let mut said = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/threads/t/messages?limit=1{cursor}")).await.ok(200);
        said.extend(page["messages"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let roles: Vec<&str> = said.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!((&said[0]["id"], &said[0]["content"]), (&json!("m-1"), &json!("write it")));
    assert_eq!(said[1]["tool_calls"][0]["arguments"]["text"], "written");
    assert_eq!((&said[2]["call_id"], &said[2]["status"]), (&json!("call_0"), &json!("succeeded")));
    assert_eq!(said[3]["content"], "Done.");

    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(
        (&calls["calls"][0]["status"], &calls["calls"][0]["attempts"]),
        (&json!("succeeded"), &json!(1))
    );
    let listed = client.get("/v1/runs?status=completed&thread_id=t&agent=assistant").await.ok(200);
    assert_eq!(listed["runs"][0]["id"], json!(run));
    assert_eq!(client.get("/v1/runs?status=failed").await.ok(200)["runs"], json!([]));
    client.get("/v1/threads/none/messages").await.refused(404, "THREAD_NOT_FOUND");
    for part in ["", "/events", "/calls", "/transcript", "/state"] {
        client.get(&format!("/v1/runs/run_none{part}")).await.refused(404, "RUN_NOT_FOUND");
    }
}

async fn a_thread_is_deleted_with_everything_of_it(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "write it"});
    let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
    let run = posted["run_id"].as_str().unwrap();
    let held = client.run_reaches(run, "waiting_approval").await;
    let details = client.delete("/v1/threads/t").await.refused(409, "ACTIVE_RUN_EXISTS");
    assert_eq!(details["run_id"], json!(run));
    client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    client.run_reaches(run, "interrupted").await;
    assert_eq!(client.delete("/v1/threads/t").await.status, 204);
    client.get("/v1/threads/t").await.refused(404, "THREAD_NOT_FOUND");
    client.get(&format!("/v1/runs/{run}")).await.refused(404, "RUN_NOT_FOUND");
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    client.get(&format!("/v1/approvals/{approval}")).await.refused(404, "APPROVAL_NOT_FOUND");
    client.delete("/v1/threads/t").await.refused(404, "THREAD_NOT_FOUND");
}
