//! An approval is used once, for what the approver was shown and nothing else; a call without an answer never runs.

use std::sync::Arc;

use engine::agent::Agent;
use engine::arguments::digest;
use engine::deciding::{Answer, Cancellation, Decide, OnReject, Resumption};
use engine::store::ViewStore;
use engine::tool::{Approval, DeclaredTool, Performer, ToolDefinition};
use machine::decision::Payload;
use machine::event::{CallErrorCode, Fact};
use machine::id::{Digest, Principal, SuspensionId};
use machine::inbox::{Refusal, Verdict};
use machine::policy::Policy;
use machine::projection_rows::ApprovalStatus;
use machine::termination::{StopCode, Termination};
use serde_json::{Value, json};

use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, echo, held, remaining_events, to_assistant,
    transfer_definition, until_named, wait_until_released,
};

fn one_transfer() -> Scripted {
    asking(&[("a", "transfer", json!({"to": "bob"}))])
}

fn assistant(model: &Scripted, sent: &Sent) -> Agent {
    Agent::new("assistant", model.clone()).tool(sent.transfer())
}

fn resume(decision: Decide, resumption: Resumption) -> Decide {
    Decide { answer: Answer::Resume(resumption), ..decision }
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_reach_the_tool_and_the_model() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let decision = Decide::approve(&run, &call("a"), "ann").with_arguments(json!({"to": "carl"}));
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!(sent.arguments(), [json!({"to": "carl"})]);
    assert_eq!(
        model.last_read(),
        [
            "user: go",
            "assistant: [\"a\"]",
            "tool a: Arguments were changed by the approver to: {\"to\":\"carl\"}\nsent",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_that_do_not_fit_the_schema_are_refused_and_the_call_stays_held() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    let tool = sent.tool(transfer_definition().parameters(schema), |_| json!("sent"));
    let engine = harness.start(Agent::new("assistant", model).tool(tool)).await;
    let (run, _watched) = held(&engine, to_assistant()).await;
    let decision = Decide::approve(&run, &call("a"), "ann").with_arguments(json!({"to": 7}));
    let verdict = engine.decide(decision).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused(Refusal::Invalid(_))), "{verdict:?}");
    assert_eq!((sent.count(), harness.pending().await.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_yes_to_other_arguments_than_the_held_ones_is_refused() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let approve = Decide::approve(&run, &call("a"), "ann");
    let seen =
        |digest| resume(approve.clone(), Resumption { expect_digest: Some(digest), ..Resumption::default() });
    let other = seen(digest(&json!({"to": "eve"})).unwrap());
    let (before, commits) = (harness.names(&run).await, harness.commits());
    assert_eq!(engine.decide(other).await.unwrap(), Verdict::Refused(Refusal::DigestMismatch));
    assert_eq!((harness.names(&run).await, harness.commits(), sent.count()), (before, commits, 0));
    let same = seen(digest(&json!({"to": "bob"})).unwrap());
    assert_eq!(engine.decide(same).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!(sent.arguments(), [json!({"to": "bob"})]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_false_null_or_failed_answer_runs_nothing() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, _watched) = held(&engine, to_assistant()).await;
    let before = harness.names(&run).await;
    let payloads = [json!(false), Value::Null, json!("yes"), json!(1), json!({"approved": true}), json!([])]
        .map(|value| Payload::Result(Arc::new(value)));
    for payload in payloads.into_iter().chain([Payload::Error("no idea".into())]) {
        let said = Resumption { payload: payload.clone(), ..Resumption::default() };
        let decision = resume(Decide::approve(&run, &call("a"), "ann"), said);
        let verdict = engine.decide(decision).await.unwrap();
        assert!(matches!(verdict, Verdict::Refused(Refusal::Invalid(_))), "{payload:?}: {verdict:?}");
    }
    wait_until_released(&engine).await;
    assert_eq!((harness.names(&run).await, sent.count(), harness.pending().await.len()), (before, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_a_tool_that_changed_is_void_and_the_call_is_held_again() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let changed = sent.tool(ToolDefinition::new("transfer", "Moves all the money"), |_| json!("gone"));
    let agent = Agent::new("assistant", model.clone()).tool(changed);
    engine.replace_agents(vec![agent]).await.unwrap();
    let decision = Decide::approve(&run, &call("a"), "ann").with_id("d1");
    assert_eq!(engine.decide(decision.clone()).await.unwrap(), Verdict::ToolChanged);
    let again = until_named(&mut watched, "tool.approval_requested").await;
    let Fact::ApprovalRequested(opened) = again.fact else { panic!("{again:?}") };
    assert_eq!(sent.count(), 0);
    // The spent decision does not answer the new question.
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::AlreadyApplied);
    wait_until_released(&engine).await;
    assert_eq!((sent.count(), harness.pending().await[0].id.clone()), (0, opened.suspension_id));
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1);
    assert_eq!(harness.count(&run, "tool.approval_voided").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_of_a_tool_that_is_gone_fails_and_is_not_sent() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    engine.replace_agents(vec![Agent::new("assistant", model.clone())]).await.unwrap();
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap(), Verdict::Accepted);
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = failed.fact else { panic!("{failed:?}") };
    assert_eq!(error.code, CallErrorCode::ToolRemoved);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.ended(&run).await), (0, Some(Termination::NaturalEnd)));
}

#[tokio::test(start_paused = true)]
async fn an_approval_for_the_future_lets_later_calls_of_the_tool_through_and_names_who_gave_it() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    let for_later_calls = Resumption { apply_to_future: true, ..Resumption::default() };
    accepted(engine.decide(resume(Decide::approve(&run, &call("a"), "ann"), for_later_calls)).await);
    remaining_events(&mut watched).await;
    let (posted, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    let started = until_named(&mut watched, "tool.execution_started").await;
    let Fact::ExecutionStarted { let_through_by, .. } = started.fact else { panic!("{started:?}") };
    assert_eq!(let_through_by, Some(Principal::from("ann")));
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.count(&posted.run, "tool.approval_requested").await), (2, 0));
    // It is for this thread alone.
    held(&engine, to_assistant().on_thread("other")).await;
    assert_eq!(sent.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_approval_for_the_future_does_not_count_for_a_tool_that_changed() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    let for_later_calls = Resumption { apply_to_future: true, ..Resumption::default() };
    accepted(engine.decide(resume(Decide::approve(&run, &call("a"), "ann"), for_later_calls)).await);
    remaining_events(&mut watched).await;
    let changed = sent.tool(ToolDefinition::new("transfer", "Moves all the money"), |_| json!("gone"));
    engine.replace_agents(vec![Agent::new("assistant", model.clone()).tool(changed)]).await.unwrap();
    held(&engine, to_assistant().on_thread("t")).await;
    assert_eq!(sent.count(), 1);
}

/// The description is the same, but the approver also agreed to who performs the call.
#[tokio::test(start_paused = true)]
async fn an_approval_does_not_count_for_another_performer_of_the_tool() {
    let by = |performer: Performer| {
        let definition = ToolDefinition::new("transfer", "Moves money").performed_by(performer);
        DeclaredTool::new(definition.approval(Approval::Ask))
    };
    let agent = |name: &str, budget_tokens_max| Performer::Agent { agent: name.into(), budget_tokens_max };
    let changes = [
        (agent("reader", None), agent("payer", None), Verdict::ToolChanged),
        (Performer::Client, Performer::External, Verdict::ToolChanged),
        (Performer::Client, Performer::Server, Verdict::ToolChanged),
        (agent("reader", None), agent("reader", Some(7)), Verdict::Accepted),
    ];
    for (before, after, verdict) in changes {
        let (harness, model) = (Harness::new(), one_transfer());
        let agents = |performer: &Performer| {
            let others = ["reader", "payer"].map(|name| Agent::new(name, Scripted::new([])));
            let assistant = Agent::new("assistant", model.clone()).tool(by(performer.clone()));
            others.into_iter().chain([assistant])
        };
        let engine = agents(&before).fold(harness.engine(), |engine, agent| engine.agent(agent));
        let engine = engine.start().await.unwrap();
        let (run, _watched) = held(&engine, to_assistant()).await;
        engine.replace_agents(agents(&after).collect()).await.unwrap();
        let decided = engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap();
        assert_eq!(decided, verdict, "{before:?}, then {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn auto_approve_lets_the_calls_of_a_thread_through_until_it_is_revoked() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (tenant, thread) = (engine::store::Tenant::default(), "t".into());
    harness.store.put_thread(&tenant, &thread, &Value::Null).await.unwrap();
    engine.auto_approve(&tenant, &thread, true, &"ann".into()).await.unwrap();
    let (_, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    let started = until_named(&mut watched, "tool.execution_started").await;
    let Fact::ExecutionStarted { let_through_by, .. } = started.fact else { panic!("{started:?}") };
    assert_eq!(let_through_by, Some(Principal::from("ann")));
    remaining_events(&mut watched).await;
    engine.auto_approve(&tenant, &thread, false, &"ann".into()).await.unwrap();
    held(&engine, to_assistant().on_thread("t")).await;
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_repeated_under_its_id_is_applied_once_and_another_one_under_it_is_refused() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let decision = Decide::approve(&run, &call("a"), "ann").with_id("d1");
    let other = Decide::reject(&run, &call("a"), "ann", "no").with_id("d1");
    assert_eq!(engine.decide(decision.clone()).await.unwrap(), Verdict::Accepted);
    assert_eq!(engine.decide(decision.clone()).await.unwrap(), Verdict::AlreadyApplied);
    assert_eq!(engine.decide(other.clone()).await.unwrap(), Verdict::Refused(Refusal::IdUsed));
    remaining_events(&mut watched).await;
    let before = harness.names(&run).await;
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::AlreadyApplied);
    assert_eq!(engine.decide(other).await.unwrap(), Verdict::Refused(Refusal::IdUsed));
    assert_eq!((harness.names(&run).await, sent.count()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_an_ended_run_or_on_a_call_that_is_not_held_is_refused() {
    let model = asking(&[("a", "transfer", json!({})), ("c", "echo", json!({}))]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(assistant(&model, &sent).tool(echo())).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let not_held = Verdict::Refused(Refusal::NotHeld);
    assert_eq!(engine.decide(Decide::approve(&run, &call("c"), "ann")).await.unwrap(), not_held);
    let unknown = engine.decide(Decide::approve(&run, &call("missing"), "ann")).await.unwrap();
    assert_eq!(unknown, Verdict::Refused(Refusal::UnknownCall));
    let mut other = Decide::approve(&run, &call("a"), "ann");
    other.suspension = Some(SuspensionId::from("apr_of_another_call"));
    assert_eq!(engine.decide(other).await.unwrap(), not_held);
    accepted(engine.decide(Decide::reject(&run, &call("a"), "ann", "no")).await);
    remaining_events(&mut watched).await;
    let late = engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap();
    assert_eq!((late, sent.count()), (Verdict::Refused(Refusal::RunOver), 0));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_reaches_the_model_with_its_reason_and_the_run_continues() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    accepted(engine.decide(Decide::reject(&run, &call("a"), "ann", "too much")).await);
    remaining_events(&mut watched).await;
    assert_eq!(model.last_read()[2], "tool a: Denied by ann: too much");
    assert_eq!((sent.count(), harness.ended(&run).await), (0, Some(Termination::NaturalEnd)));
    let shown = harness.store.approvals(
        &engine::store::Tenant::default(),
        &engine::store::ApprovalFilter {
            status: Some(ApprovalStatus::Rejected),
            ..engine::store::ApprovalFilter::for_run(&run)
        },
        &engine::store::Page::default(),
    );
    let shown = shown.await.unwrap().items;
    assert_eq!(shown.len(), 1);
    assert_eq!((&shown[0].decided_by, &shown[0].reason), (&Some("ann".into()), &Some("too much".into())));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_ends_the_run_where_the_decision_or_the_policy_says_so() {
    for by_policy in [false, true] {
        let model = asking(&[("a", "transfer", json!({})), ("b", "transfer", json!({}))]);
        let (harness, sent) = (Harness::new(), Sent::default());
        let on_reject = by_policy.then_some(OnReject::EndRun);
        let agent = assistant(&model, &sent).policy(Policy { on_reject, ..Policy::default() });
        let engine = harness.start(agent).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        let then = if by_policy { None } else { Some(OnReject::EndRun) };
        let answer =
            Answer::Cancel(Cancellation { reason: Some("stop it".into()), then, ..Cancellation::default() });
        let decision = Decide { answer, ..Decide::approve(&run, &call("a"), "ann") };
        assert_eq!(engine.decide(decision).await.unwrap(), Verdict::Accepted);
        remaining_events(&mut watched).await;
        let ended = Termination::stopped(StopCode::Rejected, "stop it".to_owned());
        assert_eq!((sent.count(), harness.ended(&run).await), (0, Some(ended)));
        // The other approval is closed with the run, and the model was not asked again.
        assert_eq!((harness.pending().await, model.requests().len()), (vec![], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_follows_the_request_then_the_policy_then_its_own_default() {
    use OnReject::{Continue, EndRun};
    for (then, on_reject, ends) in [
        (None, None, true),
        (None, Some(Continue), false),
        (None, Some(EndRun), true),
        (Some(Continue), Some(EndRun), false),
        (Some(EndRun), Some(Continue), true),
    ] {
        let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
        let agent = assistant(&model, &sent).policy(Policy { on_reject, ..Policy::default() });
        let engine = harness.start(agent).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        let cancellation = Cancellation { then, then_by_default: Some(EndRun), ..Cancellation::default() };
        let answer = Answer::Cancel(cancellation);
        let decision = Decide { answer, ..Decide::approve(&run, &harness.pending().await[0].call, "ann") };
        accepted(engine.decide(decision).await);
        remaining_events(&mut watched).await;
        let is_stopped = matches!(harness.ended(&run).await, Some(Termination::Stopped(_)));
        assert_eq!((is_stopped, sent.count()), (ends, 0), "{then:?} {on_reject:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejecting_one_call_drops_neither_the_approved_nor_the_free_one() {
    let model = asking(&[
        ("a", "transfer", json!({"to": "a"})),
        ("b", "transfer", json!({"to": "b"})),
        ("c", "echo", json!({"n": 1})),
    ]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(assistant(&model, &sent).tool(echo())).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    accepted(engine.decide(Decide::reject(&run, &call("a"), "ann", "no")).await);
    accepted(engine.decide(Decide::approve(&run, &call("b"), "ann")).await);
    remaining_events(&mut watched).await;
    let wanted = [
        "user: go",
        "assistant: [\"a\", \"b\", \"c\"]",
        "tool a: Denied by ann: no",
        "tool b: sent",
        "tool c: {\"n\":1}",
    ];
    assert_eq!(model.last_read(), wanted);
    assert_eq!(sent.arguments(), [json!({"to": "b"})]);
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_to_the_approver_is_exactly_what_is_sent() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(assistant(&model, &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    let arguments = shown.opened.as_ref().unwrap().arguments.clone().unwrap();
    assert_eq!(arguments.digest(), digest(&json!({"to": "bob"})).unwrap());
    assert_ne!(arguments.digest(), Digest::sha256(b""));
    accepted(engine.decide(Decide::approve(&run, &shown.call, "ann")).await);
    remaining_events(&mut watched).await;
    let machine::tool::Arguments::Valid { value, .. } = arguments else { panic!("{arguments:?}") };
    assert_eq!(sent.arguments(), [(*value).clone()]);
}
