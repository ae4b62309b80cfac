//! A recorded answer is never asked for again: not after a crash, and not by the process that takes the run over.

use std::sync::Arc;

use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::plugin::Phase;
use engine::store::{BoxFuture, Tenant};
use machine::event::Fact;
use serde_json::json;
use tokio::sync::mpsc;

use crate::harness::{HeldClock, Ran, Scripted, Stored, hook, look, message, next_event};
use crate::server::{HookServer, Turn};

/// Reports each request, and answers only if it has a script.
struct Reporting {
    asked: mpsc::UnboundedSender<ModelRequest>,
    then: Option<Scripted>,
}

impl Model for Reporting {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let _ = self.asked.send(request.clone());
        match &self.then {
            Some(then) => then.answer(request, deltas),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// One action of each phase that lets the run continue.
fn recorded_in_every_phase() -> impl Fn(&serde_json::Value, usize) -> Option<Turn> + Send + Sync + 'static {
    |question, _| {
        let step = &question["step"];
        let set = json!({"type": "set_state", "key": question["phase"], "value": step});
        Some(match question["phase"].as_str().unwrap() {
            "step_start" | "before_inference" => {
                Turn::actions(&[set, json!({"type": "add_instruction", "text": format!("step {step}")})])
            }
            "after_tool_execute" => Turn::actions(&[set, json!({"type": "add_note", "text": "noted"})]),
            _ => Turn::actions(&[set]),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_answer_is_not_asked_for_again_by_the_process_that_takes_the_run_over() {
    let _clock = HeldClock::new();
    let server = HookServer::serving_by(recorded_in_every_phase()).await;
    let (ran, stored) = (Ran::default(), Stored::new());
    let (asked, mut asking) = mpsc::unbounded_channel();
    let agent = |then: Option<Scripted>| {
        let model = Reporting { asked: asked.clone(), then };
        Agent::new("assistant", model).tool(look(&ran)).plugin(hook(&server.url(), Phase::ALL))
    };
    let engine = stored.start(agent(None)).await;
    let (posted, _watched) = engine.stream(message()).await.unwrap();
    // The model is at work: the answers of the phases before it are recorded.
    let before = asking.recv().await.unwrap();
    assert_eq!(&*before.instructions, "step 1\nstep 1");
    assert_eq!(server.phases(), ["run_start", "step_start", "before_inference"]);
    engine.abort();
    let engine = stored.reopen().start(agent(Some(Scripted::new()))).await;
    let again = asking.recv().await.unwrap();
    assert_eq!((&*again.instructions, again.attempt), (&*before.instructions, 2));
    let mut watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
    let mut recorded = Vec::new();
    while let Some(event) = next_event(&mut watched).await {
        if let Fact::PhaseAnswered { phase, call_id, .. } = &event.fact {
            recorded.push((*phase, event.step, call_id.clone()));
        }
    }
    let phases = server.phases();
    let first_step = [
        "run_start",
        "step_start",
        "before_inference",
        "after_inference",
        "before_tool_execute",
        "after_tool_execute",
        "step_end",
    ];
    let second_step = ["step_start", "before_inference", "after_inference", "step_end", "run_end"];
    assert_eq!(phases, [&first_step[..], &second_step[..]].concat(), "each was asked once");
    assert_eq!(recorded.len(), phases.len(), "{recorded:?}");
}

/// The first process is stopped after each commit in turn. Whatever it had recorded is not asked for again.
#[tokio::test(start_paused = true)]
async fn a_recorded_answer_is_not_asked_for_again_after_a_crash_at_any_commit() {
    let _clock = HeldClock::new();
    let mut crashes = 0;
    for last_seq in 1.. {
        let server = HookServer::serving_by(recorded_in_every_phase()).await;
        let (ran, stored) = (Ran::default(), Stored::new());
        let agent = || {
            Agent::new("assistant", Scripted::new()).tool(look(&ran)).plugin(hook(&server.url(), Phase::ALL))
        };
        let engine = stored.start(agent()).await;
        let (posted, mut watched) = engine.stream(message()).await.unwrap();
        let mut ended = true;
        while let Some(event) = next_event(&mut watched).await {
            if event.seq >= last_seq {
                ended = false;
                break;
            }
        }
        engine.abort();
        if ended {
            break;
        }
        crashes += 1;
        let reopened = stored.reopen();
        let (recorded, asked_before) = (answers(&reopened, &posted.run).await, server.questions().len());
        let engine = reopened.start(agent()).await;
        let mut watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
        while next_event(&mut watched).await.is_some() {}
        engine.abort();
        // A call that was running when its process was lost passes the gate again. That is another question.
        let again: Vec<_> = server.questions()[asked_before..]
            .iter()
            .filter(|asked| asked["revisit"].is_null())
            .map(|asked| key(asked["phase"].clone(), asked["step"].clone()))
            .filter(|asked| recorded.contains(asked))
            .collect();
        assert_eq!(again, [], "crash after event {last_seq}: asked again although recorded in {recorded:?}");
    }
    assert!(crashes > 20, "{crashes} crashes");
}

/// Identifies a question: each phase is asked once per step, and those of a run once.
fn key(phase: serde_json::Value, step: serde_json::Value) -> (serde_json::Value, serde_json::Value) {
    let of_run = phase == "run_start" || phase == "run_end";
    (phase, if of_run { json!(null) } else { step })
}

/// Every recorded answer.
async fn answers(stored: &Stored, run: &machine::id::RunId) -> Vec<(serde_json::Value, serde_json::Value)> {
    use engine::store::ViewStore;
    let page = stored.store.events(&Tenant::default(), run, 0, 100_000).await.unwrap();
    let events = page.iter().map(|committed| Arc::clone(&committed.readable().unwrap().event));
    events
        .filter_map(|event| match &event.fact {
            Fact::PhaseAnswered { phase, .. } => Some(key(json!(phase), json!(event.step))),
            _ => None,
        })
        .collect()
}
