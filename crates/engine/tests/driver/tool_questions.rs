//! A tool that answers "pending": what it left for itself comes back with the answer, in each mode.

use std::sync::Arc;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::tool::{
    AskKind, DeclaredTool, OnExpiry, Outcome, Performer, ResumeMode, Resumed, SuspendRequest, Tool,
    ToolAnswer, ToolDefinition,
};
use machine::inbox::{Refusal, Verdict};
use machine::suspension::SuspensionKind;
use serde_json::{Value, json};

use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, held, remaining_events, success, to_assistant,
    wait_until_released,
};

fn question(mode: ResumeMode, schema: Option<Value>) -> Outcome {
    Outcome::Answered(ToolAnswer::Pending(SuspendRequest {
        kind: AskKind::Question,
        question: Some("which one?".into()),
        schema: schema.map(Arc::new),
        mode,
        resume_state: Some(Arc::new(json!({"cursor": 7}))),
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }))
}

/// Asks once, then returns the answer.
fn picker(sent: &Sent, mode: ResumeMode, schema: Option<Value>) -> impl Tool + use<> {
    let definition = ToolDefinition::new("pick", "Asks back").read();
    sent.tool(definition, move |request| match &request.resume {
        None => question(mode, schema.clone()),
        Some(_) => success(json!("picked")),
    })
}

fn picking() -> Scripted {
    asking(&[("a", "pick", json!({"from": "all"}))])
}

#[tokio::test(start_paused = true)]
async fn a_replayed_tool_gets_its_own_arguments_its_state_and_the_answer() {
    let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
    let tool = picker(&sent, ResumeMode::ReplayToolCall, None);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    assert_eq!(
        (shown.kind, shown.opened.as_ref().unwrap().question.as_deref()),
        (SuspensionKind::Question, Some("which one?"))
    );
    let decision = Decide::result(&run, &call("a"), "ann", json!("the blue one"));
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    let requests = sent.requests();
    let resumed = Resumed {
        state: Some(Arc::new(json!({"cursor": 7}))),
        answer: Some(Arc::new(json!("the blue one"))),
        by: "ann".into(),
    };
    assert_eq!((requests.len(), &requests[1].resume), (2, &Some(resumed)));
    assert_eq!((&requests[1].arguments, requests[1].attempt), (&Arc::new(json!({"from": "all"})), 2));
    assert_eq!(model.last_read()[2], "tool a: picked");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_continues_without_an_answer_gets_its_state_and_who_decided() {
    let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
    let tool = picker(&sent, ResumeMode::ReplayToolCall, None);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    let resumed = Resumed { state: Some(Arc::new(json!({"cursor": 7}))), answer: None, by: "ann".into() };
    assert_eq!((sent.count(), &sent.requests()[1].resume), (2, &Some(resumed)));
    assert_eq!(model.last_read()[2], "tool a: picked");
}

#[tokio::test(start_paused = true)]
async fn the_resume_state_of_a_tool_survives_the_process() {
    let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
    let agent =
        || Agent::new("assistant", model.clone()).tool(picker(&sent, ResumeMode::ReplayToolCall, None));
    let engine = harness.start(agent()).await;
    let (run, _) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    accepted(engine.decide(Decide::result(&run, &call("a"), "ann", json!("red"))).await);
    remaining_events(&mut engine.subscribe(&engine::store::Tenant::default(), &run, 0)).await;
    let resume = sent.requests().pop().unwrap().resume.unwrap();
    assert_eq!(
        (resume.state, resume.answer),
        (Some(Arc::new(json!({"cursor": 7}))), Some(Arc::new(json!("red"))))
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_the_result_does_not_run_the_tool_again() {
    let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
    let tool = picker(&sent, ResumeMode::UseDecisionAsToolResult, None);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    // As a result, even false is a result.
    accepted(engine.decide(Decide::result(&run, &call("a"), "ann", json!(false))).await);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), &*model.last_read()[2]), (1, "tool a: false"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_becomes_the_arguments_is_what_the_tool_is_called_with() {
    for (answer, arguments) in
        [(json!({"from": "blue"}), json!({"from": "blue"})), (json!(true), json!({"from": "all"}))]
    {
        let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
        let tool = picker(&sent, ResumeMode::PassDecisionToTool, None);
        let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        accepted(engine.decide(Decide::result(&run, &call("a"), "ann", answer)).await);
        remaining_events(&mut watched).await;
        assert_eq!(sent.arguments(), [json!({"from": "all"}), arguments]);
    }
}

#[tokio::test(start_paused = true)]
async fn false_and_null_never_run_a_tool_again() {
    for mode in [ResumeMode::ReplayToolCall, ResumeMode::PassDecisionToTool] {
        let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
        let engine = harness.start(Agent::new("assistant", model).tool(picker(&sent, mode, None))).await;
        let (run, _watched) = held(&engine, to_assistant()).await;
        for no in [json!(false), Value::Null] {
            let verdict = engine.decide(Decide::result(&run, &call("a"), "ann", no)).await.unwrap();
            assert!(matches!(verdict, Verdict::Refused(Refusal::Invalid(_))), "{verdict:?}");
        }
        wait_until_released(&engine).await;
        assert_eq!((sent.count(), harness.pending().await.len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_the_schema_is_refused_and_one_that_fits_is_taken() {
    let (harness, model, sent) = (Harness::new(), picking(), Sent::default());
    let schema = json!({"enum": ["red", "blue"]});
    let tool = picker(&sent, ResumeMode::ReplayToolCall, Some(schema));
    let engine = harness.start(Agent::new("assistant", model).tool(tool)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let verdict = engine.decide(Decide::result(&run, &call("a"), "ann", json!("green"))).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused(Refusal::Invalid(_))), "{verdict:?}");
    let verdict = engine.decide(Decide::result(&run, &call("a"), "ann", json!("blue"))).await.unwrap();
    assert_eq!(verdict, Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_another_party_performs_is_held_until_its_result_is_posted() {
    for (performer, kind) in
        [(Performer::Client, SuspensionKind::ClientTool), (Performer::External, SuspensionKind::External)]
    {
        let (harness, model) = (Harness::new(), asking(&[("a", "elsewhere", json!({"n": 1}))]));
        let definition = ToolDefinition::new("elsewhere", "Not here").performed_by(performer);
        let agent = Agent::new("assistant", model.clone()).tool(DeclaredTool::new(definition));
        let engine = harness.start(agent).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        let view = engine.view(&engine::store::Tenant::default(), &run).await.unwrap().unwrap();
        let pending = view.control.as_ref().unwrap().pending();
        assert_eq!((pending.len(), pending[0].kind), (1, kind));
        accepted(engine.decide(Decide::result(&run, &call("a"), "front end", json!("done there"))).await);
        remaining_events(&mut watched).await;
        assert_eq!(model.last_read()[2], "tool a: done there");
    }
}
