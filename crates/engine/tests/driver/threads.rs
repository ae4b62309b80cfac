//! One run holds a thread: what a second message meets, who comes next, and beginning after an earlier message.

use std::sync::{Arc, Mutex, OnceLock};

use engine::Engine;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::{ModelAnswer, ModelRequest};
use engine::plugin::{FunctionPlugin, HookContext, Phase};
use engine::posting::{Message, OnBusy, PolicyRequest, PostError};
use engine::store::{Page, RunFilter, Tenant, ViewStore};
use engine::tool::{Approval, Outcome, ToolDefinition};
use machine::event::Fact;
use machine::id::MessageId;
use machine::policy::{Policy, WhileWaiting};
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};
use machine::termination::{Cancelled, Termination};
use machine::thread::Busy;
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::{
    FunctionModel, Harness, Scripted, Sent, accepted, asking, call, echo, gated, held, remaining_events,
    texts_read_by, to_assistant, until_named,
};

fn says(text: &str) -> Message {
    Message::to("assistant", text).on_thread("t")
}

fn superseded() -> Option<Termination> {
    Some(Termination::Cancelled(Cancelled::Superseded))
}

/// A model whose first call waits for its gate; keeps what each call reads.
fn slow_at_first(gate: &Arc<Notify>, read: &Arc<Mutex<Vec<Vec<String>>>>) -> Agent {
    let (gate, read) = (gate.clone(), read.clone());
    let model = FunctionModel(move |request: ModelRequest, _| {
        let first = {
            let mut read = read.lock().unwrap();
            read.push(texts_read_by(&request));
            read.len() == 1
        };
        let gate = gate.clone();
        async move {
            if first {
                gate.notified().await;
            }
            Ok(ModelAnswer::text(format!("to {}", request.last_user_text().unwrap())))
        }
    });
    Agent::new("assistant", model)
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_busy_thread_is_refused_unless_it_asks_otherwise() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let first = engine.post(says("one")).await.unwrap();
    let refused = engine.post(says("two")).await.unwrap_err();
    assert_eq!(refused, PostError::Busy(Busy::ActiveRun(first.run)));
    // Another thread is free.
    engine.run(Message::to("assistant", "two").on_thread("other")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_enqueued_message_joins_the_thread_when_its_run_starts() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let (_, mut first) = engine.stream(says("one")).await.unwrap();
    let enqueue = Message { on_busy: Some(OnBusy::Enqueue), ..says("two") };
    let (second, mut last) = engine.stream(enqueue).await.unwrap();
    assert_eq!(second.status, PublicRunStatus::Queued);
    gate.notify_one();
    remaining_events(&mut first).await;
    remaining_events(&mut last).await;
    let wanted = [vec!["user: one"], vec!["user: one", "assistant: to one[]", "user: two"]];
    assert_eq!(*read.lock().unwrap(), wanted);
}

#[tokio::test(start_paused = true)]
async fn an_interrupting_message_takes_the_place_of_the_run_that_executes() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let model = asking(&[("a", "slow", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(gated("slow", &gate))).await;
    let (first, mut watched) = engine.stream(says("one")).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let interrupting = Message { on_busy: Some(OnBusy::Interrupt), ..says("two") };
    let (_, mut last) = engine.stream(interrupting).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&first.run).await, superseded());
    gate.notify_one();
    remaining_events(&mut last).await;
    let read = texts_read_by(&model.requests()[1]);
    assert_eq!(read, ["user: one", "assistant: [\"a\"]", "tool a: Cancelled: superseded", "user: two"]);
}

#[tokio::test(start_paused = true)]
async fn a106_the_next_run_reads_that_the_one_before_was_interrupted_while_its_model_was_asked() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let (first, mut watched) = engine.stream(says("one")).await.unwrap();
    while read.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    accepted(engine.interrupt(&Tenant::default(), &first.run, &"ann".into()).await);
    remaining_events(&mut watched).await;
    engine.run(says("two")).await.unwrap();
    let notice = "notice: [The run was interrupted here, before the model had answered.]";
    assert_eq!(read.lock().unwrap()[1], ["user: one", notice, "user: two"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_while_an_approval_is_open_is_refused_supersedes_or_waits_as_the_policy_says() {
    for while_waiting in [WhileWaiting::Reject, WhileWaiting::Supersede, WhileWaiting::Enqueue] {
        let (harness, sent) = (Harness::new(), Sent::default());
        let policy = Policy { while_waiting, ..Policy::default() };
        let model = Scripted::new([
            Ok(crate::harness::ask(&[("a", "transfer", json!({}))])),
            Ok(ModelAnswer::text("Done.")),
        ]);
        let agent = Agent::new("assistant", model).tool(sent.transfer()).policy(policy);
        let engine = harness.start(agent).await;
        let (first, mut watched) = held(&engine, says("one")).await;
        let second = engine.post(says("two")).await;
        match while_waiting {
            WhileWaiting::Reject => {
                assert_eq!(second.unwrap_err(), PostError::Busy(Busy::ActiveRun(first)));
                assert_eq!(harness.pending().await.len(), 1);
            }
            WhileWaiting::Supersede => {
                remaining_events(&mut watched).await;
                assert_eq!(harness.ended(&first).await, superseded());
                let second = second.unwrap().run;
                let mut watched = engine.subscribe(&Tenant::default(), &second, 0);
                until_named(&mut watched, "run.waiting").await;
                let open = harness.pending().await;
                assert_eq!((open.len(), &open[0].run), (1, &second));
                let closed = harness.closed(&first).await;
                assert_eq!(
                    (closed[0].status, closed[0].reason.as_deref()),
                    (ApprovalStatus::Rejected, Some("superseded"))
                );
            }
            WhileWaiting::Enqueue => {
                assert_eq!(second.unwrap().status, PublicRunStatus::Queued);
                accepted(engine.decide(Decide::approve(&first, &call("a"), "ann")).await);
                remaining_events(&mut watched).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_call_in_doubt_is_not_superseded() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let post = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let lost = |_: &_| Outcome::Unknown { why: "the line is cut".into(), retry_after_ms: None };
    let agent = Agent::new("assistant", asking(&[("a", "post", json!({}))])).tool(sent.tool(post, lost));
    let engine = harness.start(agent).await;
    let (run, _watched) = held(&engine, says("one")).await;
    let policy = PolicyRequest { while_waiting: Some(WhileWaiting::Supersede), ..PolicyRequest::default() };
    let refused = engine.post(Message { policy, ..says("two") }).await.unwrap_err();
    assert_eq!(refused, PostError::Busy(Busy::InDoubt(run)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_messages_at_once_one_holds_the_thread_and_the_rest_are_refused() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let posts: Vec<_> = (0..100)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.post(says(&format!("message {number}"))).await })
        })
        .collect();
    let mut holders = Vec::new();
    for post in posts {
        match post.await.unwrap() {
            Ok(posted) => holders.push(posted),
            Err(refused) => assert!(matches!(refused, PostError::Busy(Busy::ActiveRun(_))), "{refused:?}"),
        }
    }
    assert_eq!(holders.len(), 1);
    gate.notify_one();
    let mut watched = engine.subscribe(&Tenant::default(), &holders[0].run, 0);
    remaining_events(&mut watched).await;
    assert_eq!(read.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_enqueued_messages_each_is_answered_once_and_after_the_ones_before() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let posts: Vec<_> = (0..50)
        .map(|number| {
            let engine = engine.clone();
            let message = Message { on_busy: Some(OnBusy::Enqueue), ..says(&format!("message {number}")) };
            tokio::spawn(async move { engine.post(message).await.unwrap().run })
        })
        .collect();
    gate.notify_one();
    for post in posts {
        remaining_events(&mut engine.subscribe(&Tenant::default(), &post.await.unwrap(), 0)).await;
    }
    let read = read.lock().unwrap();
    assert_eq!(read.len(), 50);
    for (earlier, later) in read.iter().zip(read.iter().skip(1)) {
        assert_eq!(later.len(), earlier.len() + 2);
        assert_eq!(later[..earlier.len()], earlier[..]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_reaches_a_run_that_is_still_queued() {
    let (harness, gate, read) = (Harness::new(), Arc::new(Notify::new()), Arc::default());
    let engine = harness.start(slow_at_first(&gate, &read)).await;
    let (_, mut first) = engine.stream(says("one")).await.unwrap();
    let enqueue = Message { on_busy: Some(OnBusy::Enqueue), ..says("two") };
    let (second, mut last) = engine.stream(enqueue).await.unwrap();
    accepted(engine.interrupt(&Tenant::default(), &second.run, &"ann".into()).await);
    remaining_events(&mut last).await;
    let ended = harness.ended(&second.run).await;
    assert_eq!(ended, Some(Termination::Cancelled(Cancelled::Interrupted)));
    gate.notify_one();
    remaining_events(&mut first).await;
    assert_eq!(read.lock().unwrap().len(), 1);
}

/// A thread with two answered messages, m1 and m2.
async fn two_rounds(harness: &Harness, model: &Scripted) -> (Engine, MessageId) {
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(echo())).await;
    let mut answers = Vec::new();
    for id in ["m1", "m2"] {
        let message = Message { message_id: Some(id.into()), ..says(id) };
        let (_, mut watched) = engine.stream(message).await.unwrap();
        answers.extend(remaining_events(&mut watched).await.into_iter().filter_map(
            |event| match event.fact {
                Fact::MessageAdded(machine::event::Message::Assistant { id, .. }) => Some(id),
                _ => None,
            },
        ));
    }
    (engine, answers[0].clone())
}

#[tokio::test(start_paused = true)]
async fn a_message_after_an_earlier_one_reads_only_what_was_before_it() {
    let (harness, model) = (Harness::new(), Scripted::new([Ok(ModelAnswer::text("Yes."))]));
    let (engine, answer) = two_rounds(&harness, &model).await;
    // The second message is edited.
    let edited = Message { after: Some(answer.clone()), ..says("m2, better") };
    engine.run(edited).await.unwrap();
    assert_eq!(model.last_read(), ["user: m1", "assistant: Yes.[]", "user: m2, better"]);
    // The first one is answered again.
    let again = Message { after: Some("m1".into()), content: None, ..says("") };
    engine.run(again).await.unwrap();
    assert_eq!(model.last_read(), ["user: m1"]);
    // What follows begins after the latest.
    engine.run(says("m3")).await.unwrap();
    assert_eq!(model.last_read(), ["user: m1", "assistant: Yes.[]", "user: m3"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_after_one_that_is_not_there_or_leaves_a_call_open_is_refused() {
    let (harness, model) = (Harness::new(), asking(&[("a", "echo", json!({}))]));
    let (engine, asked) = two_rounds(&harness, &model).await;
    for (after, why) in [
        (MessageId::from("missing"), "the thread has no such message"),
        (asked, "it leaves a call without its result"),
    ] {
        let message = Message { after: Some(after.clone()), ..says("again") };
        let refused = engine.post(message).await.unwrap_err();
        assert_eq!(refused, PostError::CannotBeginAfter { message: after, why: why.into() });
    }
    let elsewhere = Message { after: Some("m1".into()), ..to_assistant().on_thread("other") };
    assert!(matches!(engine.post(elsewhere).await.unwrap_err(), PostError::CannotBeginAfter { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_empty_has_no_agent_or_has_a_used_id_is_refused() {
    let (harness, model) = (Harness::new(), Scripted::new([Ok(ModelAnswer::text("Yes."))]));
    let (engine, _) = two_rounds(&harness, &model).await;
    let used = Message { message_id: Some("m1".into()), ..says("again") };
    assert_eq!(engine.post(used).await.unwrap_err(), PostError::MessageIdTaken("m1".into()));
    assert_eq!(engine.post(says("  ")).await.unwrap_err(), PostError::Empty);
    assert_eq!(engine.post(Message { content: None, ..says("") }).await.unwrap_err(), PostError::Empty);
    let to_a_missing_agent = Message::to("missing", "hello");
    assert_eq!(engine.post(to_a_missing_agent).await.unwrap_err(), PostError::NoSuchAgent("missing".into()));
    let bytes = engine::posting::MESSAGE_BYTES_MAX + 1;
    assert_eq!(engine.post(says(&"x".repeat(bytes))).await.unwrap_err(), PostError::TooLarge { bytes });
}

#[tokio::test(start_paused = true)]
async fn no_caller_can_take_an_id_that_a_run_will_need_for_its_own_message() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let model = asking(&[("a", "slow", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(gated("slow", &gate))).await;
    let (posted, mut watched) = engine.stream(says("one")).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    // The id of the second answer of the run in front is known before that is given.
    for id in [format!("msg_{}_2", posted.run), "msg_run_x_1".into(), "late_a".into(), "note_a_1".into()] {
        let id = MessageId::from(id);
        let forged = Message { message_id: Some(id.clone()), on_busy: Some(OnBusy::Enqueue), ..says("two") };
        assert_eq!(engine.post(forged).await.unwrap_err(), PostError::MessageIdReserved(id));
    }
    gate.notify_one();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    let runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    assert_eq!(runs.items.len(), 1, "no run came of any of them");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_taken_while_an_answer_is_in_flight_stops_no_run() {
    let (harness, model) = (Harness::new(), asking(&[("a", "echo", json!({"n": 1}))]));
    let known: Arc<OnceLock<Engine>> = Arc::default();
    let taken: Arc<OnceLock<()>> = Arc::default();
    let engine_of_plugin = known.clone();
    // Behind the look at the ids that are taken, and before the answer is stored.
    let takes = FunctionPlugin::new("takes", [Phase::AfterInference], move |_: HookContext| {
        let (engine, taken) = (engine_of_plugin.clone(), taken.clone());
        async move {
            if taken.set(()).is_ok() {
                let id = Some(MessageId::from("msg_a"));
                let forged = Message { message_id: id, on_busy: Some(OnBusy::Enqueue), ..says("two") };
                engine.get().unwrap().post(forged).await.unwrap();
            }
            Ok(Vec::new())
        }
    });
    let agent = Agent::new("assistant", model.clone()).tool(echo()).plugin(takes);
    let engine = harness.start(agent).await;
    assert!(known.set(engine.clone()).is_ok());
    let (posted, mut watched) = engine.stream(says("one")).await.unwrap();
    let asked = until_named(&mut watched, "tool.requested").await;
    assert!(
        matches!(&asked.fact, Fact::ToolRequested { call_id, .. } if call_id.as_str() != "a"),
        "{asked:?}"
    );
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    // What the model said is not asked for again.
    assert_eq!(harness.count(&posted.run, "model.retrying").await, 0);
    let runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    remaining_events(&mut engine.subscribe(&Tenant::default(), &runs.items[0].id, 0)).await;
    assert_eq!(harness.ended(&runs.items[0].id).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_request_may_tighten_and_only_an_approver_may_loosen() {
    use machine::policy::ApprovalScope;
    let (harness, sent, model) = (Harness::new(), Sent::default(), asking(&[("a", "transfer", json!({}))]));
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer())).await;
    let policy = PolicyRequest { approval: Some(ApprovalScope::Never), ..PolicyRequest::default() };
    let loosening = Message { policy, ..to_assistant() };
    assert!(matches!(engine.post(loosening.clone()).await.unwrap_err(), PostError::Loosening(_)));
    let allowed = Message { may_approve: true, by: "ann".into(), ..loosening };
    let (_, mut watched) = engine.stream(allowed).await.unwrap();
    let started = until_named(&mut watched, "tool.execution_started").await;
    assert!(
        matches!(&started.fact, Fact::ExecutionStarted { let_through_by: Some(by), .. } if by.as_str() == "ann"),
        "{started:?}"
    );
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1);
}
