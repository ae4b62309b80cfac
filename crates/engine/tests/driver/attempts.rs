//! One attempt and the next: panics, time-outs, pauses, keys, and what is never sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::agent::Agent;
use engine::clock::{Clock, RuntimeClock};
use engine::deciding::{Answer, Cancellation, Decide};
use engine::feed::Subscription;
use engine::model::ModelAnswer;
use engine::store::BoxFuture;
use engine::tool::{Approval, FunctionTool, Outcome, Tool, ToolDefinition, ToolRequest};
use machine::Timestamp;
use machine::event::{CallErrorCode, Fact};
use machine::id::idempotency_key;
use machine::inbox::Verdict;
use machine::policy::{ApprovalScope, OnReject, Policy};
use machine::suspension::{Held, SuspensionKind};
use machine::termination::Termination;
use serde_json::json;
use tokio::sync::Notify;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    BEGIN, Harness, Scripted, Sent, accepted, ask, asking, call, echo, gated, held, remaining_events,
    success, to_assistant, until, until_named, wait_until_released,
};

fn one(tool: &str) -> Scripted {
    asking(&[("a", tool, json!({"n": 1}))])
}

/// A write that needs no approval.
fn post() -> ToolDefinition {
    ToolDefinition::new("post", "Writes").approval(Approval::Never)
}

fn read() -> ToolDefinition {
    ToolDefinition::new("look", "Reads").read()
}

fn panicking(definition: ToolDefinition) -> impl Tool {
    FunctionTool::new(definition, |request: ToolRequest| async move {
        assert!(request.attempt == 0, "the tool has a mistake");
        json!("never")
    })
}

#[tokio::test(start_paused = true)]
async fn a_read_that_panics_has_failed_and_its_sibling_and_the_run_continue() {
    let (harness, model) =
        (Harness::new(), asking(&[("a", "look", json!({})), ("b", "echo", json!({"n": 2}))]));
    let engine =
        harness.start(Agent::new("assistant", model.clone()).tool(panicking(read())).tool(echo())).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(model.last_read()[2], "tool a: Error: the tool panicked: the tool has a mistake");
    assert_eq!(model.last_read()[3], "tool b: {\"n\":2}");
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_before_it_gives_a_future_has_failed_too() {
    let (harness, model, sent) = (Harness::new(), one("look"), Sent::default());
    let tool = sent.tool(read(), |request| {
        assert!(request.attempt == 0, "at once");
        json!("never")
    });
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(model.last_read()[2], "tool a: Error: the tool panicked: at once");
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_panics_is_in_doubt() {
    let (harness, model) = (Harness::new(), one("post"));
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(panicking(post()))).await;
    let (_, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    assert_eq!(
        (shown.kind, &shown.opened.as_ref().unwrap().held),
        (SuspensionKind::InDoubt, &Held::InDoubt { attempt: 1 })
    );
    accepted(engine.decide(shown.result("ann", json!("it was written"))).await);
    remaining_events(&mut watched).await;
    assert_eq!(model.last_read()[2], "tool a: it was written");
}

/// A tool that answers from the given attempt on, and keeps when it was called.
fn answering_from(
    definition: ToolDefinition,
    first: u32,
    sent: &Sent,
    times: &Arc<Mutex<Vec<u64>>>,
    clock: RuntimeClock,
) -> impl Tool + use<> {
    let (sent, times) = (sent.clone(), times.clone());
    FunctionTool::new(definition, move |request: ToolRequest| {
        times.lock().unwrap().push(clock.now().0 - BEGIN.0);
        let attempt = request.attempt;
        sent.keep(request);
        async move {
            if attempt < first {
                std::future::pending::<()>().await;
            }
            json!("there")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_read_that_times_out_is_tried_again_after_a_growing_pause_under_one_key() {
    let (harness, model, sent, times) = (Harness::new(), one("look"), Sent::default(), Arc::default());
    let definition = read().timeout(Duration::from_secs(1));
    let tool = answering_from(definition, 3, &sent, &times, harness.clock);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    // A second each, and pauses of half a second and of a whole one.
    assert_eq!(*times.lock().unwrap(), [0, 1_500, 3_500]);
    let requests = sent.requests();
    assert_eq!(requests.iter().map(|request| request.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let digest = engine::arguments::digest(&json!({"n": 1})).unwrap();
    let key = idempotency_key(&posted.run, &call("a"), &digest);
    assert!(requests.iter().all(|request| request.idempotency_key == key));
    assert_eq!(model.last_read()[2], "tool a: there");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_never_answers_fails_after_its_last_try() {
    let (harness, model, sent, times) = (Harness::new(), one("look"), Sent::default(), Arc::default());
    let definition = read().timeout(Duration::from_secs(1));
    let tool = answering_from(definition, 99, &sent, &times, harness.clock);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = failed.fact else { panic!("{failed:?}") };
    assert_eq!((error.code, failed.at), (CallErrorCode::NoAnswer, Timestamp(BEGIN.0 + 4_500)));
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.ended(&posted.run).await), (3, Some(Termination::NaturalEnd)));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_tool_asks_for_is_kept() {
    let (harness, model, sent) = (Harness::new(), one("look"), Sent::default());
    let (times, clock): (Arc<Mutex<Vec<u64>>>, _) = (Arc::default(), harness.clock);
    let seen = times.clone();
    let tool = sent.tool(read(), move |request| {
        seen.lock().unwrap().push(clock.now().0 - BEGIN.0);
        match request.attempt {
            1 => Outcome::Unknown { why: "503".into(), retry_after_ms: Some(2_000) },
            _ => success(json!("there")),
        }
    });
    let engine = harness.start(Agent::new("assistant", model).tool(tool)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(*times.lock().unwrap(), [0, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_times_out_is_in_doubt_and_is_repeated_only_when_a_person_says_so() {
    let (harness, model, sent, times) = (Harness::new(), one("post"), Sent::default(), Arc::default());
    let definition = post().timeout(Duration::from_secs(1));
    let tool = answering_from(definition, 2, &sent, &times, harness.clock);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (_, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    assert_eq!((shown.kind, shown.created_at), (SuspensionKind::InDoubt, Timestamp(BEGIN.0 + 1_000)));
    assert_eq!(sent.count(), 1);
    assert_eq!(engine.decide(shown.approve("ann")).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    let keys: Vec<String> = sent.requests().into_iter().map(|request| request.idempotency_key).collect();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    assert_eq!(model.last_read()[2], "tool a: there");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_doubt_that_is_given_up_says_that_it_may_have_taken_effect() {
    let (harness, model, sent) = (Harness::new(), one("post"), Sent::default());
    let lost = |_: &ToolRequest| Outcome::Unknown { why: "the line is cut".into(), retry_after_ms: None };
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(sent.tool(post(), lost))).await;
    let (_, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    let answer = Answer::Cancel(Cancellation::default());
    accepted(engine.decide(Decide { answer, ..shown.approve("ann") }).await);
    let cancelled = until_named(&mut watched, "tool.cancelled").await;
    assert!(matches!(cancelled.fact, Fact::ToolCancelled { outcome_unknown: true, .. }), "{cancelled:?}");
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), &*model.last_read()[2]), (1, "tool a: Cancelled; it may have taken effect"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_once_another_worker_may_hold_the_run() {
    let (harness, model, sent) = (Harness::new(), one("post"), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    store.may_send.store(false, Ordering::Release);
    let agent = Agent::new("assistant", model).tool(sent.tool(post(), |_| json!("written")));
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, outcome_unknown, .. } = failed.fact else { panic!("{failed:?}") };
    assert_eq!((error.code, outcome_unknown, sent.count()), (CallErrorCode::NotSent, false, 0));
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

/// Is sent who approved.
struct Curious<T>(T);

impl<T: Tool> Tool for Curious<T> {
    fn definition(&self) -> &Arc<ToolDefinition> {
        self.0.definition()
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        self.0.call(request)
    }

    fn wants_approval(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_cannot_be_read_for_a_while_is_not_used_up() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    let agent = Agent::new("assistant", one("transfer")).tool(Curious(sent.transfer()));
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await.remove(0);
    let decide = shown.approve("ann");
    store.failing_suspension_reads.store(3, Ordering::Release);
    accepted(engine.decide(decide).await);
    remaining_events(&mut watched).await;
    assert_eq!(store.failing_suspension_reads.load(Ordering::Acquire), 0);
    let [request] = &sent.requests()[..] else { panic!("sent once") };
    assert_eq!(request.approval.as_ref().map(|approval| approval.by.as_str()), Some("ann"));
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_tool_is_a_result_and_not_the_end_of_the_run() {
    let (harness, model, sent) = (Harness::new(), one("look"), Sent::default());
    let tool = sent.tool(read(), |_| Err::<serde_json::Value, _>("no such file"));
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), &*model.last_read()[2]), (1, "tool a: Error: no such file"));
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

/// Answers 503, so that the call pauses before it is repeated.
fn overloaded(_: &ToolRequest) -> Outcome {
    Outcome::Unknown { why: "503".into(), retry_after_ms: Some(4_000) }
}

/// The call was tried once and waits for its second attempt.
async fn pausing(watched: &mut Subscription) {
    until(watched, |fact| matches!(fact, Fact::ExecutionStarted { attempt: 2, .. })).await;
}

#[tokio::test(start_paused = true)]
async fn the_tool_that_changes_during_a_pause_before_a_repeat_passes_the_gate_again() {
    let (harness, model, sent, changed) = (Harness::new(), one("look"), Sent::default(), Sent::default());
    let agent = || Agent::new("assistant", model.clone());
    let engine = harness.start(agent().tool(sent.tool(read(), overloaded))).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    pausing(&mut watched).await;
    let other = ToolDefinition::new("look", "Reads everything").read();
    engine.replace_agents(vec![agent().tool(changed.tool(other, |_| json!("other")))]).await.unwrap();
    let started = until_named(&mut watched, "tool.execution_started").await;
    assert!(matches!(started.fact, Fact::ExecutionStarted { attempt: 3, .. }), "{started:?}");
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), changed.count(), &*model.last_read()[2]), (1, 1, "tool a: other"));
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_whose_tool_changes_during_a_pause_is_held_again_and_not_sent() {
    let (harness, model, sent, changed) = (Harness::new(), one("look"), Sent::default(), Sent::default());
    let policy = Policy { approval: ApprovalScope::AllTools, ..Policy::default() };
    let agent = || Agent::new("assistant", model.clone()).policy(policy);
    let engine = harness.start(agent().tool(sent.tool(read(), overloaded))).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let first = harness.pending().await.remove(0);
    accepted(engine.decide(first.approve("ann")).await);
    pausing(&mut watched).await;
    let other = ToolDefinition::new("look", "Reads everything").read();
    engine.replace_agents(vec![agent().tool(changed.tool(other, |_| json!("other")))]).await.unwrap();
    let again = until_named(&mut watched, "tool.approval_requested").await;
    let Fact::ApprovalRequested(opened) = again.fact else { panic!("{again:?}") };
    assert_ne!(opened.suspension_id, first.id);
    wait_until_released(&engine).await;
    assert_eq!((sent.count(), changed.count(), harness.count(&run, "tool.approval_voided").await), (1, 0, 1));
    let second = harness.pending().await.remove(0);
    accepted(engine.decide(second.approve("ann")).await);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), changed.count(), &*model.last_read()[2]), (1, 1, "tool a: other"));
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_gone_after_a_pause_fails_the_call() {
    let (harness, model, sent) = (Harness::new(), one("look"), Sent::default());
    let agent = || Agent::new("assistant", model.clone());
    let engine = harness.start(agent().tool(sent.tool(read(), overloaded))).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    pausing(&mut watched).await;
    engine.replace_agents(vec![agent()]).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = failed.fact else { panic!("{failed:?}") };
    assert_eq!((error.code, sent.count()), (CallErrorCode::ToolRemoved, 1));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_a_write_after_a_pause_is_in_doubt_and_not_repeated() {
    let (harness, model, sent, changed) = (Harness::new(), one("look"), Sent::default(), Sent::default());
    let agent = || Agent::new("assistant", model.clone());
    let engine = harness.start(agent().tool(sent.tool(read(), overloaded))).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    pausing(&mut watched).await;
    let write = changed.tool(ToolDefinition::new("look", "Writes"), |_| json!("written"));
    engine.replace_agents(vec![agent().tool(write)]).await.unwrap();
    let suspended = until_named(&mut watched, "tool.suspended").await;
    let Fact::ToolSuspended(opened) = suspended.fact else { panic!("{suspended:?}") };
    assert_eq!((opened.held, sent.count(), changed.count()), (Held::InDoubt { attempt: 1 }, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_is_not_sent_while_the_commit_that_cancels_it_is_under_way() {
    let (harness, sent, gate) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let store = FaultyStore::new(&harness.store, |_, events| {
        let ends = events.iter().any(|event| matches!(event.fact, Fact::RunEnding { .. }));
        if ends { Fate::HangsAfter } else { Fate::Stored }
    });
    let model = asking(&[("a", "look", json!({})), ("b", "transfer", json!({})), ("c", "wait", json!({}))]);
    let lost = |_: &ToolRequest| Outcome::Unknown { why: "503".into(), retry_after_ms: Some(4_000) };
    let agent = Agent::new("assistant", model)
        .tool(sent.tool(read(), lost))
        .tool(Sent::default().transfer())
        .tool(gated("wait", &gate));
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let again = |fact: &Fact| matches!(fact, Fact::ExecutionStarted { attempt: 2, .. });
    until(&mut watched, again).await;
    let rejected = {
        let (engine, decide) = (engine.clone(), Decide::approve(&posted.run, &call("b"), "ann"));
        let answer = Answer::Cancel(Cancellation { then: Some(OnReject::EndRun), ..Cancellation::default() });
        tokio::spawn(async move { engine.decide(Decide { answer, ..decide }).await })
    };
    store.hung.notified().await;
    tokio::time::advance(Duration::from_secs(5)).await;
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    store.resume.notify_one();
    accepted(rejected.await.unwrap());
    gate.notify_one();
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1, "the second attempt was cancelled before its time came");
}

/// Goes with the runtime's, and may be set back.
#[derive(Clone)]
struct SetBack {
    clock: RuntimeClock,
    behind_ms: Arc<AtomicU64>,
}

impl Clock for SetBack {
    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now().0 - self.behind_ms.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at.plus_ms(self.behind_ms.load(Ordering::SeqCst)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_keeps_neither_the_model_nor_a_tool_waiting() {
    let harness = Harness::new();
    let behind_ms = Arc::new(AtomicU64::new(0));
    let set = behind_ms.clone();
    let look = FunctionTool::new(read(), move |_: ToolRequest| {
        set.store(600_000, Ordering::SeqCst);
        async { json!("it is earlier than it was") }
    });
    let model = Scripted::new([
        Ok(ask(&[("a", "look", json!({}))])),
        Ok(ask(&[("b", "echo", json!({}))])),
        Ok(ModelAnswer::text("Done.")),
    ]);
    let clock = SetBack { clock: harness.clock, behind_ms };
    let agent = Agent::new("assistant", model).tool(look).tool(echo());
    let engine = harness.engine().clock(clock).agent(agent).start().await.unwrap();
    let began = tokio::time::Instant::now();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    assert_eq!(began.elapsed(), Duration::ZERO);
}
