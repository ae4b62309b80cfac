//! Watching a run: from any position, by every permitted watcher, by a thousand at once; no watcher slows the run down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::RunOutcome;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::feed::{FeedItem, Subscription};
use engine::store::{StoreError, Tenant};
use machine::event::{Event, Fact};
use machine::id::RunId;
use machine::termination::Termination;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    Harness, Scripted, Sent, accepted, ask, asking, call, echo, gated, held, next_event, remaining_events,
    to_assistant, two_echoes, until_named, wait_until_released,
};

#[tokio::test(start_paused = true)]
async fn from_any_event_on_a_watcher_gets_exactly_the_rest_while_it_runs_and_after_the_end() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&[("a", "transfer", json!({})), ("c", "echo", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer()).tool(echo())).await;
    let (run, _) = held(&engine, to_assistant()).await;
    let stored = harness.log(&run).await.len() as u64;
    let early: Vec<(u64, Subscription)> =
        (0..=stored).map(|after| (after, engine.subscribe(&Tenant::default(), &run, after))).collect();
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    for (after, mut watched) in early {
        let seen = remaining_events(&mut watched).await;
        assert_eq!(seen, harness.log(&run).await[usize::try_from(after).unwrap()..], "after {after}");
    }
    wait_until_released(&engine).await;
    let log = harness.log(&run).await;
    for after in 0..=log.len() {
        let mut watched = engine.subscribe(&Tenant::default(), &run, after as u64);
        assert_eq!(remaining_events(&mut watched).await, log[after..], "after {after}");
        // It stays at its end.
        assert_eq!(next_event(&mut watched).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_before_this_process_began_is_shown_from_the_store() {
    let (harness, agent) = (Harness::new(), || Agent::new("assistant", two_echoes()).tool(echo()));
    let engine = harness.start(agent()).await;
    let finished = engine.run(to_assistant()).await.unwrap();
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    let mut watched = engine.subscribe(&Tenant::default(), &finished.run, 0);
    assert_eq!(remaining_events(&mut watched).await, harness.log(&finished.run).await);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_has_the_last_event_before_its_process_does_gets_the_end() {
    let harness = Harness::new();
    let is_last = |event: &Arc<Event>| matches!(event.fact, Fact::RunEnded { .. });
    let store = FaultyStore::new(&harness.store, move |_, events| {
        if events.iter().any(is_last) { Fate::FailsAfter } else { Fate::Stored }
    });
    let agent = Agent::new("assistant", two_echoes()).tool(echo());
    let engine = harness.engine_on(store).agent(agent).start().await.unwrap();
    let (posted, _watched) = engine.stream(to_assistant()).await.unwrap();
    while harness.ended(&posted.run).await.is_none() {
        tokio::task::yield_now().await;
    }
    let last = harness.log(&posted.run).await.len() as u64;
    let mut late = engine.subscribe(&Tenant::default(), &posted.run, last);
    let item = timeout(Duration::from_secs(3_600), late.next()).await.expect("it does not wait for ever");
    assert!(item.is_none(), "{item:?}");
}

/// Also where others may work on the same runs, and therefore what is not at hand has to be read.
#[tokio::test(start_paused = true)]
async fn a_watcher_of_a_run_of_this_process_from_its_beginning_reads_nothing_from_the_store() {
    let harness = Harness::new();
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    store.shared.store(true, Ordering::Release);
    let agent = Agent::new("assistant", two_echoes()).tool(echo());
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let finished = engine.run(to_assistant()).await.unwrap();
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(store.read_count.load(Ordering::Acquire), 0);
}

/// A client may watch a run for days, and a thousand others with it.
#[tokio::test(start_paused = true)]
async fn of_what_every_watcher_has_read_nothing_but_the_last_event_stays_in_memory() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    let agent = Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let waiting = harness.log(&run).await.len() as u64;
    let nothing_more = timeout(Duration::from_secs(60), watched.next()).await;
    assert!(nothing_more.is_err(), "{nothing_more:?}");
    // Who comes now, from the beginning or not, reads the store.
    for after in [0, waiting - 2] {
        let before = store.read_count.load(Ordering::Acquire);
        let mut late = engine.subscribe(&Tenant::default(), &run, after);
        assert_eq!(next_event(&mut late).await.map(|event| event.seq), Some(after + 1));
        assert_eq!(store.read_count.load(Ordering::Acquire), before + 1, "after {after}");
    }
    // A watcher that has read everything gets the rest from memory, as before, without a read of the store.
    let before = store.read_count.load(Ordering::Acquire);
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    let seen = remaining_events(&mut watched).await;
    assert_eq!(seen, harness.log(&run).await[usize::try_from(waiting).unwrap()..]);
    assert_eq!(store.read_count.load(Ordering::Acquire), before);
}

#[tokio::test(start_paused = true)]
async fn another_tenants_run_and_an_unknown_one_are_not_found() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let engine = harness.start(agent).await;
    let (run, _watched) = held(&engine, to_assistant()).await;
    let stranger = Tenant::from("stranger");
    // The run is in memory or watched here: that must not help.
    let mut watched = engine.subscribe(&stranger, &run, 0);
    assert_eq!(watched.next().await.unwrap(), Err(StoreError::NotFound));
    let mut watched = engine.subscribe(&Tenant::default(), &RunId::from("run_nobody"), 0);
    assert_eq!(watched.next().await.unwrap(), Err(StoreError::NotFound));
    let decision = Decide::approve(&run, &call("a"), "eve").for_tenant(stranger.clone());
    assert_eq!(engine.decide(decision).await, Err(StoreError::NotFound));
    let interrupt = engine.interrupt(&stranger, &run, &"eve".into()).await;
    assert_eq!((interrupt, sent.count()), (Err(StoreError::NotFound), 0));
    assert_eq!(engine.view(&stranger, &run).await.unwrap(), None);
}

/// The events of a run that executes here are in memory, where no store compares tenants.
#[tokio::test(start_paused = true)]
async fn another_tenant_reads_no_event_of_a_run_whose_events_are_in_memory() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let agent = Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &gate));
    let engine = harness.start(agent).await;
    let (posted, mut owner) = engine.stream(to_assistant()).await.unwrap();
    // This one finds the run by its tenant, and does not read on: what comes later stays in memory for it.
    let mut slow = engine.subscribe(&Tenant::default(), &posted.run, 0);
    next_event(&mut slow).await.unwrap();
    let started = until_named(&mut owner, "tool.execution_started").await.seq;
    let stranger = Tenant::from("stranger");
    for after in 0..=started {
        let mut watched = engine.subscribe(&stranger, &posted.run, after);
        assert_eq!(watched.next().await.unwrap(), Err(StoreError::NotFound), "after {after}");
    }
    gate.notify_one();
    remaining_events(&mut owner).await;
    for after in 0..harness.log(&posted.run).await.len() as u64 {
        let mut watched = engine.subscribe(&stranger, &posted.run, after);
        assert_eq!(watched.next().await.unwrap(), Err(StoreError::NotFound), "after {after}");
    }
    assert_eq!(remaining_events(&mut slow).await, harness.log(&posted.run).await[1..]);
}

#[tokio::test(start_paused = true)]
async fn another_tenants_interrupt_of_a_run_in_memory_is_not_found() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let agent = Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &gate));
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let stranger = Tenant::from("stranger");
    assert_eq!(engine.interrupt(&stranger, &posted.run, &"eve".into()).await, Err(StoreError::NotFound));
    gate.notify_one();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

/// A run over many steps, whose log is longer than what is kept in memory.
fn long_winded() -> Scripted {
    let step = |number: usize| {
        let ids: Vec<String> = (0..32).map(|index| format!("c{number}_{index}")).collect();
        let calls: Vec<(&str, &str, Value)> = ids.iter().map(|id| (&**id, "echo", json!({}))).collect();
        Ok(ask(&calls))
    };
    Scripted::new((0..4).map(step).chain([Ok(engine::model::ModelAnswer::text("Done."))]))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_half_of_whom_never_read_change_nothing() {
    let alone = Harness::new();
    let engine = alone.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    engine.run(to_assistant()).await.unwrap();
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    let subscribe = |_| engine.subscribe(&Tenant::default(), &posted.run, 0);
    let mut idle: Vec<Subscription> = (0..500).map(subscribe).collect();
    let readers: Vec<_> = (0..500)
        .map(subscribe)
        .map(|mut watched| tokio::spawn(async move { remaining_events(&mut watched).await }))
        .collect();
    let mut seen: Vec<Vec<Event>> = Vec::new();
    for reader in readers {
        seen.push(reader.await.unwrap());
    }
    let log = harness.log(&posted.run).await;
    assert!(log.len() > 300, "{}", log.len());
    assert!(seen.iter().all(|events| *events == log));
    assert_eq!(harness.commits(), alone.commits());
    // A watcher that has not read yet still gets it all, although the beginning has left memory.
    assert_eq!(remaining_events(&mut idle[0]).await, log);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_reads_one_event_and_stops_does_not_hold_the_run_up() {
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    next_event(&mut watched).await.unwrap();
    remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    drop(watched);
}

#[tokio::test(start_paused = true)]
async fn among_many_watchers_one_that_stops_waiting_and_comes_back_misses_nothing() {
    let harness = Harness::new();
    let gate = Arc::new(Notify::new());
    let model = asking(&[("a", "slow", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(gated("slow", &gate))).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let mut watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
            tokio::spawn(async move {
                let mut seen: Vec<Event> = Vec::new();
                loop {
                    // Shorter than a turn takes to come.
                    match timeout(Duration::from_micros(300), watched.next()).await {
                        Ok(Some(Ok(FeedItem::Event(committed)))) => seen.push((*committed.event).clone()),
                        Ok(Some(Ok(FeedItem::Live(_) | FeedItem::Unreadable(_)))) | Err(_) => {}
                        Ok(Some(Err(refused))) => panic!("{refused}"),
                        Ok(None) => return seen,
                    }
                }
            })
        })
        .collect();
    until_named(&mut engine.subscribe(&Tenant::default(), &posted.run, 0), "tool.execution_started").await;
    gate.notify_one();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), harness.log(&posted.run).await);
    }
}

#[tokio::test(start_paused = true)]
async fn many_watchers_can_read_what_is_stored_after_their_engine_has_stopped() {
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let finished = engine.run(to_assistant()).await.unwrap();
    let subscribe = |_| engine.subscribe(&Tenant::default(), &finished.run, 0);
    let mut crowd: Vec<Subscription> = (0..20).map(subscribe).collect();
    for watched in &mut crowd {
        next_event(watched).await.unwrap();
    }
    engine.abort();
    let log = harness.log(&finished.run).await;
    for watched in &mut crowd {
        assert_eq!(remaining_events(watched).await, log[1..]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_on_many_threads_that_come_and_go_all_see_the_log() {
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    let readers: Vec<_> = (0..64_u64)
        .map(|number| {
            let (engine, run) = (engine.clone(), posted.run.clone());
            tokio::spawn(async move {
                let mut seen: Vec<Event> = Vec::new();
                // Reads a few, leaves, and comes back with the last number it saw.
                loop {
                    let after = seen.last().map_or(0, |event| event.seq);
                    let mut watched = engine.subscribe(&Tenant::default(), &run, after);
                    // A watcher that is always ready must not keep its thread from the run.
                    tokio::task::yield_now().await;
                    for _ in 0..=number {
                        match watched.next().await {
                            Some(Ok(FeedItem::Event(committed))) => seen.push((*committed.event).clone()),
                            Some(Ok(FeedItem::Live(_) | FeedItem::Unreadable(_))) => {}
                            Some(Err(refused)) => panic!("{refused}"),
                            None => return seen,
                        }
                    }
                }
            })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), harness.log(&posted.run).await);
    }
}

#[tokio::test(start_paused = true)]
async fn following_after_the_last_event_of_an_ended_run_reports_its_end() {
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let finished = engine.run(to_assistant()).await.unwrap();
    engine.abort();
    let engine = harness.reopen().start(Agent::new("assistant", long_winded()).tool(echo())).await;
    let again = engine.follow(&Tenant::default(), &finished.run, finished.last_seq).await.unwrap();
    assert_eq!(again.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert!(engine.subscribe(&Tenant::default(), &finished.run, u64::MAX).next().await.is_none());
}
