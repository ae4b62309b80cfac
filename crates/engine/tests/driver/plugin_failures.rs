//! What plugins keep, and what it means when one fails, panics, comes late or is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::plugin::{Action, HookContext, Phase, PhaseSet, Plugin, Scope};
use engine::store::{BoxFuture, Tenant, ViewStore};
use machine::event::{CallErrorCode, Fact};
use machine::id::PluginName;
use machine::termination::{ErrorCode, Termination};
use serde_json::{Value, json};

use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, echo, held, next_event, remaining_events, to_assistant,
    until_named, wait_until_released,
};

fn one_transfer() -> Scripted {
    asking(&[("a", "transfer", json!({}))])
}

/// How a hook goes wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Fails,
    Panics,
    IsLate,
    AnswersOutOfPlace,
}

struct Bad {
    name: PluginName,
    phase: Phase,
    wrong: Wrong,
}

impl Plugin for Bad {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        PhaseSet::default().with(self.phase)
    }

    fn hook(&self, _: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin(async {
            match self.wrong {
                Wrong::Fails => Err("no".into()),
                Wrong::Panics => panic!("a mistake"),
                Wrong::IsLate => std::future::pending().await,
                Wrong::AnswersOutOfPlace => Ok(vec![match self.phase {
                    Phase::BeforeToolExecute => Action::SkipInference,
                    _ => Action::Block { reason: "here?".into() },
                }]),
            }
        })
    }
}

/// One call of a read, with a plugin that goes wrong in this phase.
async fn wrong_in(
    phase: Phase,
    wrong: Wrong,
) -> (Option<Termination>, usize, Vec<CallErrorCode>, Vec<String>) {
    let (harness, model, sent) = (Harness::new(), asking(&[("a", "look", json!({}))]), Sent::default());
    let tool = sent.tool(engine::tool::ToolDefinition::new("look", "Reads").read(), |_| json!("seen"));
    let agent = Agent::new("assistant", model).tool(tool).plugin(Bad { name: "bad".into(), phase, wrong });
    let settings = Settings { hook_timeout: Duration::from_secs(3), ..Settings::default() };
    let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    let codes = events.iter().filter_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some(error.code),
        _ => None,
    });
    let recorded = events.iter().filter_map(|event| match &event.fact {
        Fact::PhaseAnswered { failed, .. } => failed.clone(),
        _ => None,
    });
    let found = (codes.collect(), recorded.collect());
    (harness.ended(&posted.run).await, sent.count(), found.0, found.1)
}

const WRONG: [Wrong; 4] = [Wrong::Fails, Wrong::Panics, Wrong::IsLate, Wrong::AnswersOutOfPlace];

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_before_the_tools_ends_the_run_with_an_error() {
    for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference, Phase::AfterInference] {
        for wrong in WRONG {
            let (ended, sent, _, recorded) = wrong_in(phase, wrong).await;
            let Some(Termination::Error(error)) = ended else { panic!("{phase} {wrong:?}: {ended:?}") };
            assert_eq!((error.code, sent, recorded.len()), (ErrorCode::Hook, 0, 1), "{phase} {wrong:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_at_the_gate_fails_the_call_and_nothing_is_sent() {
    for wrong in WRONG {
        let (ended, sent, codes, recorded) = wrong_in(Phase::BeforeToolExecute, wrong).await;
        assert_eq!(ended, Some(Termination::NaturalEnd), "{wrong:?}");
        assert_eq!((sent, codes, recorded.len()), (0, vec![CallErrorCode::GateFailed], 1), "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_after_the_tools_is_recorded_and_the_run_continues() {
    for (phase, times) in [(Phase::AfterToolExecute, 1), (Phase::StepEnd, 2), (Phase::RunEnd, 1)] {
        for wrong in WRONG {
            let (ended, sent, codes, recorded) = wrong_in(phase, wrong).await;
            assert_eq!(ended, Some(Termination::NaturalEnd), "{phase} {wrong:?}");
            assert_eq!((sent, codes, recorded.len()), (1, vec![], times), "{phase} {wrong:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b42_the_hooks_after_a_result_are_asked_in_order_and_one_that_fails_is_skipped() {
    let notes = |name: &'static str| {
        let note = Action::AddNote { text: name.into() };
        FunctionPlugin::new(name, [Phase::AfterToolExecute], move |_| Ok(vec![note.clone()]))
    };
    for wrong in WRONG {
        let (harness, model) = (Harness::new(), asking(&[("a", "echo", json!({}))]));
        let bad = Bad { name: "bad".into(), phase: Phase::AfterToolExecute, wrong };
        let agent = Agent::new("assistant", model.clone()).tool(echo());
        let agent = agent.plugin(notes("zeta")).plugin(bad).plugin(notes("alpha"));
        let settings = Settings { hook_timeout: Duration::from_secs(3), ..Settings::default() };
        let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
        let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
        until_named(&mut watched, "tool.execution_succeeded").await;
        let mut asked = Vec::new();
        loop {
            match next_event(&mut watched).await.expect("the run continues").fact {
                Fact::PhaseAnswered { plugin, failed, .. } => {
                    asked.push((plugin.to_string(), failed.is_some()))
                }
                // The turn is over: a plugin that is asked now is too late.
                Fact::StepEnded { .. } => break,
                _ => {}
            }
        }
        let said = [("zeta", false), ("bad", true), ("alpha", false)];
        assert_eq!(asked, said.map(|(plugin, failed)| (plugin.to_owned(), failed)), "{wrong:?}");
        remaining_events(&mut watched).await;
        let read = model.last_read();
        assert_eq!(read[2..], ["tool a: {}", "note a: zeta", "note a: alpha"], "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_gone_when_the_call_comes_to_the_gate_fails_it_closed() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let quiet = FunctionPlugin::answering(Phase::BeforeToolExecute, Vec::new());
    let agent = || Agent::new("assistant", model.clone()).tool(sent.transfer());
    let engine = harness.start(agent().plugin(quiet)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    engine.replace_agents(vec![agent()]).await.unwrap();
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = failed.fact else { panic!("{failed:?}") };
    assert_eq!((error.code, sent.count()), (CallErrorCode::GateFailed, 0));
    remaining_events(&mut watched).await;
}

/// What the run keeps, what the thread keeps, and what the plugin itself remembers.
type Seen = Arc<std::sync::Mutex<Vec<(u64, u64, u32)>>>;

/// Counts in the run's and in the thread's state how often it was asked at the gate, and in itself.
fn counting(own: &Arc<AtomicU32>, seen: &Seen) -> FunctionPlugin {
    let (own, seen) = (own.clone(), seen.clone());
    FunctionPlugin::new("counter", [Phase::BeforeToolExecute], move |context| {
        let kept = |scope| {
            let value = context.state_of(&"counter".into(), scope, "asked");
            value.and_then(Value::as_u64).unwrap_or(0)
        };
        let (run, thread) = (kept(Scope::Run), kept(Scope::Thread));
        seen.lock().unwrap().push((run, thread, own.fetch_add(1, Ordering::Relaxed)));
        let set = |scope, value: u64| Action::SetState {
            key: "asked".into(),
            scope,
            value: Arc::new(json!(value)),
        };
        Ok(vec![set(Scope::Run, run + 1), set(Scope::Thread, thread + 1)])
    })
}

#[tokio::test(start_paused = true)]
async fn c42_what_a_plugin_keeps_is_there_after_a_restart_and_what_it_did_not_keep_is_reset() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let seen = Seen::default();
    let agent = || {
        let own = Arc::new(AtomicU32::new(0));
        Agent::new("assistant", model.clone()).tool(sent.transfer()).plugin(counting(&own, &seen))
    };
    let engine = harness.start(agent()).await;
    let (run, _) = held(&engine, to_assistant().on_thread("t")).await;
    wait_until_released(&engine).await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
    // The second run of the thread has a state of its own, and the thread's.
    held(&engine, to_assistant().on_thread("t")).await;
    // What the plugin counted for itself began again with the process.
    assert_eq!(*seen.lock().unwrap(), [(0, 0, 0), (1, 1, 0), (0, 2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn c42_the_checkpoint_holds_nothing_that_a_plugin_did_not_ask_to_keep() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let own = Arc::new(std::sync::Mutex::new(Vec::new()));
    let plugin = |own: &Arc<std::sync::Mutex<Vec<String>>>| {
        let own = own.clone();
        FunctionPlugin::new("plugin", [Phase::BeforeToolExecute], move |_| {
            own.lock().unwrap().push("kept to itself".to_owned());
            let value = Arc::new(json!("kept for the run"));
            Ok(vec![Action::SetState { key: "k".into(), scope: Scope::Run, value }])
        })
    };
    let agent = |own| Agent::new("assistant", model.clone()).tool(sent.transfer()).plugin(plugin(own));
    let engine = harness.start(agent(&own)).await;
    let (run, _watched) = held(&engine, to_assistant()).await;
    assert_eq!(*own.lock().unwrap(), ["kept to itself"]);
    let view = harness.store.run(&Tenant::default(), &run).await.unwrap().unwrap();
    let mut stored = String::from_utf8_lossy(&view.decoded().unwrap().encode().unwrap()).into_owned();
    for event in harness.log(&run).await {
        stored.push_str(&machine::event_codec::encode(&event).unwrap());
    }
    assert!(stored.contains("kept for the run"), "what it asked to keep is stored");
    assert!(!stored.contains("kept to itself"), "and nothing else of it");
    // A worker that loads the run has what was kept, and a new instance of the plugin.
    engine.abort();
    let (harness, fresh) = (harness.reopen(), Arc::default());
    let engine = harness.start(agent(&fresh)).await;
    assert!(fresh.lock().unwrap().is_empty());
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
    assert_eq!(*fresh.lock().unwrap(), ["kept to itself"]);
}

#[tokio::test(start_paused = true)]
async fn a77_a_value_that_is_there_already_is_no_news() {
    let harness = Harness::new();
    let plugin = FunctionPlugin::new("plugin", [Phase::StepStart, Phase::StepEnd], |context| {
        let set = |value| Action::SetState { key: "k".into(), scope: Scope::Run, value: Arc::new(value) };
        // The second step ends where it began: both of its changes are in the log.
        Ok(match (context.step, context.subject.phase()) {
            (2, Phase::StepEnd) => vec![set(json!(2)), set(json!(1))],
            _ => vec![set(json!(1))],
        })
    });
    let model = asking(&[("a", "echo", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(echo()).plugin(plugin)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    let values: Vec<Value> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::StateChanged { value, .. } => Some((**value).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(values, [json!(1), json!(2), json!(1)]);
}

#[tokio::test(start_paused = true)]
async fn what_one_phase_keeps_is_seen_in_the_next() {
    let (harness, seen) = (Harness::new(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let recorded = seen.clone();
    let plugin = FunctionPlugin::new("plugin", Phase::ALL, move |context| {
        let last = context.state_of(&"plugin".into(), Scope::Run, "last").cloned();
        recorded
            .lock()
            .unwrap()
            .push(last.map_or("nothing".into(), |last| last.as_str().unwrap().to_owned()));
        let value = Arc::new(json!(context.subject.phase().to_string()));
        Ok(vec![Action::SetState { key: "last".into(), scope: Scope::Run, value }])
    });
    let model = Scripted::new([Ok(engine::model::ModelAnswer::text("Hi."))]);
    let engine = harness.start(Agent::new("assistant", model).plugin(plugin)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    let wanted = ["nothing", "RunStart", "StepStart", "BeforeInference", "AfterInference", "StepEnd"];
    assert_eq!(*seen.lock().unwrap(), wanted);
}
