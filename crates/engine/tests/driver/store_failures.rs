//! A store that fails: nothing is lost, nothing is repeated, nothing is said before it is stored.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::posting::PostError;
use engine::store::{RunStore, StoreError, StoreFailure, Tenant, ViewStore};
use engine::tool::{Approval, ToolDefinition};
use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::Fact;
use machine::inbox::{Item, Verdict};
use machine::termination::Termination;
use serde_json::json;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    Harness, Scripted, Sent, asking, call, echo, held, name, next_event, remaining_events, to_assistant,
    until_named, wait_until_released,
};

fn mixed() -> Scripted {
    asking(&[
        ("a", "transfer", json!({"to": "bob"})),
        ("b", "post", json!({"text": "hi"})),
        ("c", "echo", json!({"n": 1})),
    ])
}

/// A write that is held, a write that is not, and a read.
fn assistant(model: &Scripted, sent: &Sent) -> Agent {
    let post = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    Agent::new("assistant", model.clone())
        .tool(sent.transfer())
        .tool(sent.tool(post, |_| json!("posted")))
        .tool(echo())
}

/// Approves every pending call. The approver retries when the store fails.
async fn approve_open(engine: &Engine, harness: &Harness) {
    for open in harness.pending().await {
        let decision = Decide::approve(&open.run, &open.call, "ann").with_id(open.id.as_str());
        let verdict = match engine.decide(decision.clone()).await {
            Ok(verdict) => verdict,
            Err(_) => engine.decide(decision).await.unwrap(),
        };
        assert!(matches!(verdict, Verdict::Accepted | Verdict::AlreadyApplied), "{verdict:?}");
    }
}

/// Each commit of a run meets this fate, one run for each, apart from the one with which it is posted.
async fn at_every_commit(fate: Fate) {
    let mut number = 2;
    while with_one_failure(number, fate).await {
        number += 1;
    }
    assert!(number > 5, "only {} commits were tried", number - 2);
}

/// One run with a held call, whose `number`th commit meets this fate; false if it had no such commit.
async fn with_one_failure(number: u64, fate: Fate) -> bool {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let store =
        FaultyStore::new(&harness.store, move |now, _| if now == number { fate } else { Fate::Stored });
    let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = next_event(&mut watched).await {
        let waits = matches!(event.fact, Fact::RunWaiting { .. });
        events.push(event);
        if waits {
            approve_open(&engine, &harness).await;
        }
    }
    let context = format!("commit {number} {fate:?}");
    assert_eq!(events, harness.log(&posted.run).await, "{context}: the watcher saw something else");
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd), "{context}");
    // No approver is asked about a call that was never sent.
    assert_eq!(harness.count(&posted.run, "tool.suspended").await, 0, "{context}");
    let mut written: Vec<String> = sent.requests().iter().map(|request| request.call.to_string()).collect();
    written.sort();
    assert_eq!(written, ["a", "b"], "{context}");
    let wanted = [
        "user: go",
        "assistant: [\"a\", \"b\", \"c\"]",
        "tool a: sent",
        "tool b: posted",
        "tool c: {\"n\":1}",
    ];
    assert_eq!(model.last_read(), wanted, "{context}");
    store.commit_count.load(Ordering::Acquire) >= number
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_before_it_is_stored_loses_and_repeats_nothing() {
    at_every_commit(Fate::FailsBefore).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_stored_is_refused_and_leaves_nothing() {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let store = FaultyStore::new(
        &harness.store,
        |number, _| if number == 1 { Fate::FailsBefore } else { Fate::Stored },
    );
    let engine = harness.engine_on(store).agent(assistant(&model, &sent)).start().await.unwrap();
    let refused = engine.post(to_assistant().on_thread("t")).await.unwrap_err();
    let unavailable = StoreFailure::Unavailable("the line is cut".into());
    assert_eq!(refused, PostError::Store(StoreError::Failed(unavailable)));
    // The thread is free.
    held(&engine, to_assistant().on_thread("t")).await;
}

#[tokio::test(start_paused = true)]
async fn an_accepted_decision_is_not_forgotten_when_the_commit_that_processes_it_fails() {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let approved = |fact: &Fact| matches!(fact, Fact::ToolApproved { .. });
    let failed = std::sync::atomic::AtomicBool::new(false);
    let store = FaultyStore::new(&harness.store, move |_, events| {
        let processes_approval = events.iter().any(|event| approved(&event.fact));
        if processes_approval && !failed.swap(true, Ordering::AcqRel) {
            Fate::FailsBefore
        } else {
            Fate::Stored
        }
    });
    let engine = harness.engine_on(store).agent(assistant(&model, &sent)).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    let verdict = engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap();
    assert_eq!(verdict, Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!((harness.count(&run, "tool.approved").await, sent.count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_decision_between_the_last_inbox_read_and_the_release_is_processed() {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
    store.hangs_on_release.store(true, Ordering::Release);
    let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    store.hung.notified().await;
    // Another node stores it: this engine gets no notification.
    let shown = harness.pending().await.remove(0);
    let decision = Decision {
        id: None,
        call: call("a"),
        suspension: shown.id.clone(),
        by: "ann".into(),
        accepted_at: harness.store.now(),
        definition_now: None,
        action: DecisionAction::Resume(Resume::default()),
    };
    let verdict = harness.store.submit(&Tenant::default(), &run, Item::Decision(decision)).await.unwrap();
    assert_eq!(verdict, Verdict::Accepted);
    store.resume.notify_one();
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.ended(&run).await), (2, Some(Termination::NaturalEnd)));
}

#[tokio::test(start_paused = true)]
async fn no_call_is_sent_before_its_intent_is_stored() {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, events| {
        let starts = events.iter().any(|event| matches!(event.fact, Fact::ExecutionStarted { .. }));
        if starts { Fate::HangsBefore } else { Fate::Stored }
    });
    let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    store.hung.notified().await;
    nothing_happens(&mut watched, &harness, &posted.run).await;
    assert_eq!(sent.count(), 0);
    store.resume.notify_one();
    until_named(&mut watched, "tool.execution_succeeded").await;
    assert_eq!(sent.count(), 1);
}

/// Everything that is stored is read; then an hour passes without a word.
async fn nothing_happens(
    watched: &mut engine::feed::Subscription,
    harness: &Harness,
    run: &machine::id::RunId,
) {
    let mut seen = 0;
    let hour = Duration::from_secs(3_600);
    while let Ok(Some(Ok(item))) = tokio::time::timeout(hour, watched.next()).await {
        if let engine::feed::FeedItem::Event(committed) = item {
            seen = committed.event.seq;
        }
    }
    assert_eq!(seen, harness.log(run).await.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_its_commit_has_returned() {
    for number in 2..=3 {
        let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
        let fate = move |now, _: &[_]| if now == number { Fate::HangsBefore } else { Fate::Stored };
        let store = FaultyStore::new(&harness.store, fate);
        let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        store.hung.notified().await;
        let before = harness.log(&posted.run).await.len();
        nothing_happens(&mut watched, &harness, &posted.run).await;
        store.resume.notify_one();
        let next = next_event(&mut watched).await.unwrap();
        assert_eq!(next.seq as usize, before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a66_a_result_that_cannot_be_stored_is_not_published() {
    let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, events| {
        let results = events.iter().any(|event| matches!(event.fact, Fact::ExecutionSucceeded { .. }));
        if results { Fate::FailsBefore } else { Fate::Stored }
    });
    let engine = harness.engine_on(store).agent(assistant(&model, &sent)).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(Some(Ok(item))) = tokio::time::timeout(Duration::from_secs(3_600), watched.next()).await {
        if let engine::feed::FeedItem::Event(committed) = item {
            seen.push(name(&committed.event.fact));
        }
    }
    assert_eq!(seen, harness.names(&posted.run).await);
    assert!(!seen.contains(&"tool.execution_succeeded".to_owned()), "{seen:?}");
    // The tools have run, once each, and the log does not say that they have.
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a67_an_end_that_cannot_be_stored_is_not_published_and_readers_get_the_error() {
    let (harness, model, sent) = (Harness::new(), asking(&[("c", "echo", json!({}))]), Sent::default());
    let store = FaultyStore::new(&harness.store, |_, events| {
        let ends = events.iter().any(|event| matches!(event.fact, Fact::RunEnded { .. }));
        if ends { Fate::FailsBefore } else { Fate::Stored }
    });
    let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    nothing_happens(&mut watched, &harness, &posted.run).await;
    assert_eq!(harness.ended(&posted.run).await, None);
    // After a restart nothing is in memory: a watcher has to read, and gets the error.
    engine.abort();
    let harness = harness.reopen();
    store.unreadable.store(true, Ordering::Release);
    let engine = harness.engine_on(store).start().await.unwrap();
    let error = engine.subscribe(&Tenant::default(), &posted.run, 0).next().await.unwrap();
    let unavailable = StoreFailure::Unavailable("the line is cut".into());
    assert_eq!(error, Err(StoreError::Failed(unavailable)));
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_after_it_is_stored_loses_and_repeats_nothing() {
    at_every_commit(Fate::FailsAfter).await;
}

/// The append that the worker makes in its place is refused, and the run must not stay without a worker.
#[tokio::test(start_paused = true)]
async fn a_commit_that_is_stored_after_its_worker_looked_for_it_loses_and_repeats_nothing() {
    at_every_commit(Fate::ComesLate).await;
}

#[tokio::test(start_paused = true)]
async fn a67_an_end_whose_commit_fails_at_first_is_published_once_it_is_stored() {
    for fate in [Fate::FailsBefore, Fate::FailsAfter] {
        let (harness, model, sent) = (Harness::new(), asking(&[("c", "echo", json!({}))]), Sent::default());
        let failed = std::sync::atomic::AtomicBool::new(false);
        let store = FaultyStore::new(&harness.store, move |_, events| {
            let ends = events.iter().any(|event| matches!(event.fact, Fact::RunEnded { .. }));
            if ends && !failed.swap(true, Ordering::AcqRel) { fate } else { Fate::Stored }
        });
        let engine = harness.engine_on(store).agent(assistant(&model, &sent)).start().await.unwrap();
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        assert_eq!(remaining_events(&mut watched).await, harness.log(&posted.run).await, "{fate:?}");
        assert_eq!(harness.count(&posted.run, "run.ended").await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c43_whenever_the_process_dies_messages_run_and_events_agree() {
    for (number, fate) in (1..=5).flat_map(|number| [(number, Fate::HangsBefore), (number, Fate::HangsAfter)])
    {
        let (harness, model, sent) = (Harness::new(), mixed(), Sent::default());
        let store =
            FaultyStore::new(&harness.store, move |now, _| if now == number { fate } else { Fate::Stored });
        let engine = harness.engine_on(store.clone()).agent(assistant(&model, &sent)).start().await.unwrap();
        let (posting, deciding) = (engine.clone(), harness.clone());
        let story = tokio::spawn(async move {
            held(&posting, to_assistant().on_thread("t")).await;
            approve_open(&posting, &deciding).await;
        });
        store.hung.notified().await;
        engine.abort();
        story.abort();
        let (tenant, thread) = (Tenant::default(), "t".into());
        let page = engine::store::Page::default();
        let runs =
            harness.store.runs(&tenant, &engine::store::RunFilter::default(), &page).await.unwrap().items;
        assert_eq!(runs.len(), usize::from((number, fate) != (1, Fate::HangsBefore)));
        let mut head = None;
        for run in &runs {
            // That the run's state is the fold of these events is looked at there.
            for event in harness.log(&run.id).await {
                if let Fact::MessageAdded(message) = &event.fact {
                    let place = harness.store.message(&tenant, &thread, message.id()).await.unwrap().unwrap();
                    assert_eq!((&place.run, place.seq), (&run.id, event.seq));
                    head = Some(message.id().clone());
                }
            }
        }
        assert_eq!(
            harness.store.thread(&tenant, &thread).await.unwrap().head,
            head,
            "commit {number} {fate:?}"
        );
    }
}
