//! RunEnd of cancelled runs: asked once, after the end, and no caller waits for it.

use std::sync::Arc;
use std::time::Duration;

use engine::agent::Agent;
use engine::model::ModelAnswer;
use engine::plugin::{Action, FunctionPlugin, HookContext, Phase, Plugin, Scope, Subject};
use engine::store::Tenant;
use engine::tool::{Approval, DeclaredTool, Performer, ToolDefinition};
use engine::{Engine, Settings};
use machine::id::RunId;
use machine::policy::{Policy, WhileWaiting};
use machine::termination::{Cancelled, Termination};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::harness::{
    FunctionModel, Harness, Sent, accepted, asking, held, next_event, remaining_events, to_assistant,
    until_named, wait_until_released,
};

/// How each run ended, and what the plugin had kept for it.
type Ended = mpsc::UnboundedReceiver<(Termination, Option<Value>)>;

/// Takes a seat at the beginning of a run, and gives it back at the end.
fn seats() -> (impl Plugin, Ended) {
    let (sender, ends) = mpsc::unbounded_channel();
    let plugin =
        FunctionPlugin::new("seats", [Phase::RunStart, Phase::RunEnd], move |context: HookContext| {
            let sender = sender.clone();
            async move {
                let kept = context.state_of(&"seats".into(), Scope::Run, "seat").cloned();
                Ok(match &context.subject {
                    Subject::RunEnd { termination: Some(termination) } => {
                        sender.send((termination.clone(), kept)).expect("the test listens");
                        Vec::new()
                    }
                    _ => {
                        let value = Arc::new(json!(7));
                        vec![Action::SetState { key: "seat".into(), scope: Scope::Run, value }]
                    }
                })
            }
        });
    (plugin, ends)
}

async fn next(ends: &mut Ended) -> (Termination, Option<Value>) {
    let within = Duration::from_secs(3600);
    tokio::time::timeout(within, ends.recv()).await.expect("RunEnd is asked").expect("the plugin is there")
}

fn cancelled_with(how: Cancelled) -> (Termination, Option<Value>) {
    (Termination::Cancelled(how), Some(json!(7)))
}

async fn interrupt(engine: &Engine, run: &RunId) {
    accepted(engine.interrupt(&Tenant::default(), run, &"ann".into()).await);
}

#[tokio::test(start_paused = true)]
async fn c11_a52_run_end_is_asked_once_after_an_interrupt_with_the_kept_state() {
    let (harness, sent, (plugin, mut ends)) = (Harness::new(), Sent::default(), seats());
    let model = asking(&[("a", "transfer", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer()).plugin(plugin)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    // It has left memory: the interrupt loads it, and the state that the plugin kept.
    wait_until_released(&engine).await;
    interrupt(&engine, &run).await;
    remaining_events(&mut watched).await;
    assert_eq!(next(&mut ends).await, cancelled_with(Cancelled::Interrupted));
    wait_until_released(&engine).await;
    engine.close(Duration::from_secs(60)).await;
    assert!(ends.try_recv().is_err(), "it is asked once");
}

#[tokio::test(start_paused = true)]
async fn c11_run_end_is_asked_after_the_end_of_a_run_that_is_superseded() {
    let (harness, sent, (plugin, mut ends)) = (Harness::new(), Sent::default(), seats());
    let policy = Policy { while_waiting: WhileWaiting::Supersede, ..Policy::default() };
    let model = asking(&[("a", "transfer", json!({}))]);
    let agent = Agent::new("assistant", model).tool(sent.transfer()).plugin(plugin).policy(policy);
    let engine = harness.start(agent).await;
    let (_, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    engine.post(to_assistant().on_thread("t")).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(next(&mut ends).await, cancelled_with(Cancelled::Superseded));
}

#[tokio::test(start_paused = true)]
async fn c11_run_end_is_asked_after_the_end_of_a_child_that_ends_with_its_parent() {
    let (harness, sent, (plugin, mut ends)) = (Harness::new(), Sent::default(), seats());
    let performer = Performer::Agent { agent: "clerk".into(), budget_tokens_max: None };
    let delegates = ToolDefinition::new("clerk", "Delegates").performed_by(performer);
    let desk = Agent::new("desk", asking(&[("d", "clerk", json!({}))]))
        .tool(DeclaredTool::new(delegates.approval(Approval::Never)));
    let clerk = Agent::new("clerk", asking(&[("t", "transfer", json!({}))]));
    let clerk = clerk.tool(sent.transfer()).plugin(plugin);
    let engine = harness.engine().agent(desk).agent(clerk).start().await.unwrap();
    let posted = engine.post(engine::posting::Message::to("desk", "go")).await.unwrap();
    while harness.pending().await.is_empty() {
        tokio::task::yield_now().await;
    }
    interrupt(&engine, &posted.run).await;
    assert_eq!(next(&mut ends).await, cancelled_with(Cancelled::ByParent));
}

#[tokio::test(start_paused = true)]
async fn c11_a_run_that_never_started_has_no_run_end() {
    let (harness, (plugin, mut ends), gate) = (Harness::new(), seats(), Arc::new(Notify::new()));
    let opened = gate.clone();
    let model = FunctionModel(move |_, _| {
        let opened = opened.clone();
        async move {
            opened.notified().await;
            Ok(ModelAnswer::text("Done."))
        }
    });
    let engine = harness.start(Agent::new("assistant", model).plugin(plugin)).await;
    let (_, mut first) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    until_named(&mut first, "step.started").await;
    let on_busy = Some(machine::policy::OnBusy::Enqueue);
    let behind = engine::posting::Message { on_busy, ..to_assistant().on_thread("t") };
    let (queued, mut second) = engine.stream(behind).await.unwrap();
    interrupt(&engine, &queued.run).await;
    remaining_events(&mut second).await;
    gate.notify_one();
    remaining_events(&mut first).await;
    assert_eq!(next(&mut ends).await, (Termination::NaturalEnd, Some(json!(7))));
    wait_until_released(&engine).await;
    engine.close(Duration::from_secs(60)).await;
    assert!(ends.try_recv().is_err(), "RunEnd is not asked for the run that did not start");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_at_run_end_holds_no_interrupt_up() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (sender, mut asked) = mpsc::unbounded_channel();
    let hangs = FunctionPlugin::new("hangs", [Phase::RunEnd], move |_| {
        sender.send(()).expect("the test listens");
        std::future::pending()
    });
    let model = asking(&[("a", "transfer", json!({}))]);
    let settings = Settings { hook_timeout: Duration::from_secs(30), ..Settings::default() };
    let agent = Agent::new("assistant", model).tool(sent.transfer()).plugin(hangs);
    let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    let began = tokio::time::Instant::now();
    interrupt(&engine, &run).await;
    while next_event(&mut watched).await.is_some() {}
    let within = Duration::from_millis(500);
    tokio::time::timeout(within, asked.recv()).await.expect("it is asked").expect("the plugin is there");
    wait_until_released(&engine).await;
    // The thread is free at once.
    held(&engine, to_assistant().on_thread("t")).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
