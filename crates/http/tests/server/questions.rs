//! Questions that a tool asks, and their answers.

use engine::agent::Agent;
use engine::tool::{
    AskKind, FunctionTool, OnExpiry, ResumeMode, SuspendRequest, ToolAnswer, ToolDefinition, ToolRequest,
};
use models::scripted::Reply;
use serde_json::json;

use crate::test_server::{StoreKind, TestPlan, on_both_stores};

on_both_stores! {
    a_question_is_answered_and_only_answered;
    b16_no_is_an_answer_to_a_question_whose_schema_takes_it;
}

async fn a_question_is_answered_and_only_answered(store_kind: StoreKind) {
    let ask = Reply::call("q", "ask_user", json!({"question": "Which one?"}));
    let test_server = TestPlan::new(store_kind, [ask, Reply::text("Thanks.")]).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("ask me").await;
    let path = |verb: &str| format!("/v1/approvals/{approval}/{verb}");
    let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
    assert_eq!((&shown["kind"], &shown["question"]), (&json!("question"), &json!("Which one?")));
    assert_eq!(shown["arguments"], json!({"question": "Which one?"}));
    client.post_nothing(&path("approve")).await.refused(409, "WRONG_KIND");
    client.post_nothing(&path("reject")).await.refused(409, "WRONG_KIND");
    client.post(&path("answer"), json!({"choice": "retry"})).await.refused(409, "WRONG_KIND");
    client.post(&path("answer"), json!({})).await.refused(400, "BAD_REQUEST");
    let decided = client.post(&path("answer"), json!({"result": "the blue one"})).await.ok(200);
    assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("answered"), &json!("anonymous")));
    client.run_reaches(&run, "completed").await;
    client.post(&path("answer"), json!({"result": "no, red"})).await.refused(409, "APPROVAL_NOT_PENDING");
    client.post_nothing(&path("approve")).await.refused(409, "APPROVAL_NOT_PENDING");
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["result"], "the blue one");
}

fn with_a_question_that_replays(agent: Agent) -> Agent {
    let definition = ToolDefinition::new("ask_yes_or_no", "Asks, and continues with the answer").read();
    agent.tool(FunctionTool::new(definition, |request: ToolRequest| async move {
        if let Some(answer) = request.resume.and_then(|resumed| resumed.answer) {
            return ToolAnswer::Success { value: json!({"answer": *answer}).into(), warning: None };
        }
        ToolAnswer::Pending(SuspendRequest {
            kind: AskKind::Question,
            question: Some("Really?".into()),
            schema: Some(json!({"type": "boolean"}).into()),
            mode: ResumeMode::ReplayToolCall,
            resume_state: None,
            expires_in_ms: None,
            on_expiry: OnExpiry::Deny,
        })
    }))
}

async fn b16_no_is_an_answer_to_a_question_whose_schema_takes_it(store_kind: StoreKind) {
    let mut plan =
        TestPlan::new(store_kind, [Reply::call("q", "ask_yes_or_no", json!({})), Reply::text("Fine.")]);
    plan.change = with_a_question_that_replays;
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("ask me").await;
    let path = format!("/v1/approvals/{approval}/answer");
    client.post(&path, json!({"result": "no"})).await.refused(422, "INVALID_ARGUMENTS");
    client.post(&path, json!({"result": null})).await.refused(422, "INVALID_ARGUMENTS");
    assert_eq!(client.post(&path, json!({"result": false})).await.ok(200)["status"], "answered");
    client.run_reaches(&run, "completed").await;
    let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
    assert_eq!(calls["calls"][0]["result"], json!({"answer": false}));
}
