//! A run that was let go and comes back soon: its transcript is at hand, and says the same as its log.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::deciding::Decide;
use machine::termination::Termination;
use serde_json::json;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, held, to_assistant, wait_until_released,
};

/// A held call is decided after the run has left memory. With a log that cannot be read for a while; what the model
/// read at last.
async fn decided_later(settings: Settings, readable: bool) -> (Harness, Scripted, bool) {
    let (harness, model, sent) = (Harness::new(), asking(&[("a", "transfer", json!({}))]), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    let agent = Agent::new("assistant", model.clone()).tool(sent.transfer());
    let engine = harness.engine_on(store.clone()).agent(agent).settings(settings).start().await.unwrap();
    let (run, watched) = held(&engine, to_assistant()).await;
    drop(watched);
    wait_until_released(&engine).await;
    store.unreadable.store(!readable, Ordering::Release);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    // On a paused clock this sleep ends when no task has anything left to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let continued = harness.ended(&run).await.is_some();
    store.unreadable.store(false, Ordering::Release);
    // A worker that could not read the store tries again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    wait_until_released(&engine).await;
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd));
    assert_eq!(sent.count(), 1);
    (harness, model, continued)
}

#[tokio::test(start_paused = true)]
async fn a_cached_transcript_is_not_read_again() {
    let (_stage, model, continued) = decided_later(Settings::default(), false).await;
    assert!(continued);
    let (_stage, from_the_log, continued) =
        decided_later(Settings { transcript_cache_bytes: 0, ..Settings::default() }, true).await;
    assert!(continued);
    assert_eq!(model.last_read(), from_the_log.last_read());
}

#[tokio::test(start_paused = true)]
async fn without_a_cache_the_log_is_read_and_nothing_else_changes() {
    let (_stage, _, continued) =
        decided_later(Settings { transcript_cache_bytes: 0, ..Settings::default() }, false).await;
    assert!(!continued, "the log cannot be read, so the worker cannot know what to show the model");
}
