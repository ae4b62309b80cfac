//! Rule 18: one read of a log has a maximum size in bytes. Further reads return the rest.

use std::sync::Arc;

use engine::store::{CommittedEvent, EVENTS_BYTES_MAX, decoded};
use machine::id::CallId;
use machine::input::{Outcome, ToolAnswer};
use machine::{Input, event_codec};
use serde_json::Value;

use crate::fixture::{Fixture, World};
use crate::worker::{Worker, started};

/// A call returns a text of `bytes` bytes.
fn returns(worker: &mut Worker, call: &str, bytes: usize) {
    let (step, attempt) = (worker.call(call).step, worker.call(call).attempts);
    let value = Arc::new(Value::from("x".repeat(bytes)));
    let outcome = Outcome::Answered(ToolAnswer::Success { value, warning: None });
    worker.apply_input(&Input::ToolReturned { step, call: CallId::from(call), attempt, outcome });
    worker.pass_gates();
}

async fn pages(world: &World, limit: usize) -> Vec<Vec<CommittedEvent>> {
    let mut pages: Vec<Vec<CommittedEvent>> = Vec::new();
    loop {
        let after = pages.last().and_then(|page| page.last()).map_or(0, |last| last.event.seq);
        let page = world.store.events(&world.tenant, &"run".into(), after, limit).await.unwrap();
        if page.is_empty() {
            return pages;
        }
        pages.push(decoded(page).unwrap());
    }
}

fn bytes(events: &[CommittedEvent]) -> usize {
    events.iter().map(|committed| event_codec::encode(&committed.event).unwrap().len()).sum()
}

pub(crate) async fn rule_18_what_is_read_at_once_has_a_largest_size<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    let third = EVENTS_BYTES_MAX / 3;
    for round in 0..6 {
        let (one, other) = (format!("a{round}"), format!("b{round}"));
        worker.asks(&[(&one, "echo"), (&other, "echo")]);
        worker.commit(&world).await.unwrap();
        // Both in one commit, which may be read in parts.
        returns(&mut worker, &one, third);
        returns(&mut worker, &other, third);
        worker.commit(&world).await.unwrap();
    }
    worker.asks(&[("huge", "echo")]);
    returns(&mut worker, "huge", 3 * EVENTS_BYTES_MAX);
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let last = worker.run.control.seq;
    for limit in [1_000, usize::MAX] {
        let pages = pages(&world, limit).await;
        for page in &pages {
            let (_, rest) = page.split_last().unwrap();
            assert!(bytes(rest) < EVENTS_BYTES_MAX, "{} bytes and one event more", bytes(rest));
        }
        let (_, full) = pages.split_last().unwrap();
        assert!(full.len() >= 3, "{} pages", pages.len());
        // Each page is as full as the limit allows.
        assert!(full.iter().all(|page| bytes(page) > third));
        let read: Vec<u64> = pages.iter().flatten().map(|committed| committed.event.seq).collect();
        assert_eq!(read, (1..=last).collect::<Vec<u64>>());
    }
}

pub(crate) async fn rule_18_an_event_of_any_size_is_read<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "echo")]);
    returns(&mut worker, "a", 3 * EVENTS_BYTES_MAX);
    worker.commit(&world).await.unwrap();
    let whole = pages(&world, usize::MAX).await.concat();
    let one_by_one = pages(&world, 1).await;
    assert!(one_by_one.iter().all(|page| page.len() == 1));
    assert_eq!(one_by_one.concat(), whole);
    assert!(whole.iter().any(|committed| bytes(std::slice::from_ref(committed)) > 3 * EVENTS_BYTES_MAX));
}
