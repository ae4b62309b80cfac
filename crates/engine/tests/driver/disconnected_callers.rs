//! The caller disconnects before the answer: what the store has accepted continues all the same.

use std::sync::Arc;
use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::{ModelAnswer, ModelRequest};
use engine::posting::Message;
use engine::store::{Page, RunFilter, Tenant, ViewStore};
use machine::event::{Event, Fact};
use machine::termination::Termination;
use serde_json::json;
use tokio::sync::Notify;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    FunctionModel, Harness, Sent, ask, call, gated, remaining_events, to_assistant, until_named,
    wait_until_released,
};

/// "work" goes through a door; all else is a transfer.
fn assistant(sent: &Sent, door: &Arc<Notify>) -> Agent {
    let model = FunctionModel(|request: ModelRequest, _| {
        let answer = match (request.last_user_text(), request.step) {
            (Some("work"), 1) => ask(&[("w", "slow", json!({}))]),
            (_, 1) => ask(&[("a", "transfer", json!({}))]),
            _ => ModelAnswer::text("Done."),
        };
        async move { Ok(answer) }
    });
    Agent::new("assistant", model).tool(sent.transfer()).tool(gated("slow", door))
}

#[tokio::test(start_paused = true)]
async fn a_decision_whose_sender_disconnected_is_processed_as_soon_as_a_slot_is_free() {
    for fate in [Fate::HangsBefore, Fate::HangsAfter] {
        let (harness, sent, door) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
        // A submitted item comes without events.
        let fates = move |_, events: &[Arc<Event>]| if events.is_empty() { fate } else { Fate::Stored };
        let store = FaultyStore::new(&harness.store, fates);
        let settings = Settings { running_runs_max: 1, ..Settings::default() };
        let agent = assistant(&sent, &door);
        let engine = harness.engine_on(store.clone()).settings(settings).agent(agent).start().await.unwrap();
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        until_named(&mut watched, "run.waiting").await;
        wait_until_released(&engine).await;
        // No place is free, so that the decision goes through the store.
        let (_, mut worker) = engine.stream(Message::to("assistant", "work")).await.unwrap();
        until_named(&mut worker, "tool.execution_started").await;
        tokio::select! {
            biased;
            verdict = engine.decide(Decide::approve(&posted.run, &call("a"), "ann")) => panic!("{verdict:?}"),
            () = store.hung.notified() => {}
        }
        store.resume.notify_one();
        door.notify_one();
        remaining_events(&mut worker).await;
        remaining_events(&mut watched).await;
        assert_eq!((sent.count(), harness.ended(&posted.run).await), (1, Some(Termination::NaturalEnd)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_sender_disconnected_is_worked_on_once_its_run_is_stored() {
    let (harness, sent, door) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let creates = |event: &Arc<Event>| matches!(event.fact, Fact::RunQueued { .. });
    let fates = move |_, events: &[Arc<Event>]| {
        if events.iter().any(creates) { Fate::HangsAfter } else { Fate::Stored }
    };
    let store = FaultyStore::new(&harness.store, fates);
    let engine = harness.engine_on(store.clone()).agent(assistant(&sent, &door)).start().await.unwrap();
    tokio::select! {
        biased;
        posted = engine.post(to_assistant()) => panic!("{posted:?}"),
        () = store.hung.notified() => {}
    }
    store.resume.notify_one();
    let tenant = Tenant::default();
    let runs = harness.store.runs(&tenant, &RunFilter::default(), &Page::default()).await.unwrap().items;
    let [run] = &runs[..] else { panic!("one run is stored: {runs:?}") };
    let mut watched = engine.subscribe(&tenant, &run.id, 0);
    let waiting = until_named(&mut watched, "run.waiting");
    tokio::time::timeout(Duration::from_secs(3600), waiting).await.expect("a worker drives the run");
    assert_eq!(harness.pending().await.len(), 1);
}
