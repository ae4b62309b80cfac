//! The driver on a store whose disk is temporarily full: it pauses, reports nothing that is not stored, and resumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Engine;
use engine::agent::Agent;
use engine::clock::{Clock as _, RuntimeClock};
use engine::deciding::Decide;
use engine::posting::PostError;
use engine::store::{ApprovalFilter, Page, StoreError, StoreFailure, Tenant, ViewStore};
use machine::event::Fact;
use machine::fold;
use machine::inbox::Verdict;
use machine::termination::Termination;
use serde_json::json;
use stores::sqlite::{SqliteSettings, SqliteStore};

use crate::disk::{Disk, Outcome, Request};
use crate::harness::{BEGIN, Sent, asking, next_event, to_assistant};
use crate::sqlite_fixture::Folder;

/// Number of consecutive writes that find no space: longer than one pause of the driver.
const FULL_COUNT: u64 = 3;

/// Returns whether any write found the disk full.
async fn with_a_full_disk_from(number: u64) -> bool {
    let (folder, clock) = (Folder::new(), RuntimeClock::starting_at(BEGIN));
    let disk = Disk::under(&folder.file());
    let settings = SqliteSettings {
        clock: Some(Arc::new(move || clock.now())),
        on_fatal: Some(Arc::new(|why| panic!("{why}"))),
        inline: true,
    };
    let store = Arc::new(SqliteStore::open_with(folder.file(), settings).unwrap());
    let model = asking(&[("a", "transfer", json!({"to": "bob"})), ("b", "echo", json!({"n": 1}))]);
    let sent = Sent::default();
    let agent = Agent::new("assistant", model.clone()).tool(sent.transfer()).tool(crate::harness::echo());
    let engine = Engine::on_shared(store.clone()).clock(clock).agent(agent).start().await.unwrap();
    let was_full = Arc::new(AtomicBool::new(false));
    let (noted, mut writes) = (was_full.clone(), 0);
    disk.fail(move |request| {
        writes += u64::from(matches!(request, Request::Write { .. }));
        let is_full = (number..number + FULL_COUNT).contains(&writes);
        noted.fetch_or(is_full, Ordering::Relaxed);
        if is_full { Outcome::Full { written: 0 } } else { Outcome::Done }
    });
    let mut told = 0;
    let (posted, mut watched) = loop {
        match engine.stream(to_assistant().on_thread("t")).await {
            Ok(posted) => break posted,
            Err(refused) => assert_eq!(refused, PostError::Store(full())),
        }
        told += 1;
    };
    assert!(store.metrics().failures.full >= told, "every refused post is counted");
    assert!(number > 1 || told > 0, "the first write stores the message");
    let mut seen = Vec::new();
    while let Some(event) = next_event(&mut watched).await {
        let waits = matches!(event.fact, Fact::RunWaiting { .. });
        seen.push(event);
        if waits {
            approve(&engine, &store).await;
        }
    }
    let tenant = Tenant::default();
    let log = store.events(&tenant, &posted.run, 0, 10_000).await.unwrap();
    let log: Vec<_> = log.iter().map(|committed| (*committed.readable().unwrap().event).clone()).collect();
    let view = store.run(&tenant, &posted.run).await.unwrap().unwrap();
    assert_eq!(seen, log, "no space for write {number}: the subscriber received other events");
    assert_eq!(fold(&log).ok(), view.control, "no space for write {number}");
    assert_eq!(
        view.control.as_ref().unwrap().ended(),
        Some(&Termination::NaturalEnd),
        "no space for write {number}"
    );
    assert_eq!(sent.arguments(), [json!({"to": "bob"})], "no space for write {number}");
    assert_eq!(model.last_read()[2..], ["tool a: sent", "tool b: {\"n\":1}"], "no space for write {number}");
    was_full.load(Ordering::Relaxed)
}

fn full() -> StoreError {
    StoreFailure::Full("database or disk is full".into()).into()
}

/// Approves every pending call. The approver retries while the store reports that the disk is full.
async fn approve(engine: &Engine, store: &SqliteStore) {
    let open = store
        .approvals(&Tenant::default(), &ApprovalFilter::default(), &Page::default())
        .await
        .unwrap()
        .items;
    for shown in open {
        let decision = Decide::approve(&shown.run, &shown.call, "ann").with_id("d1");
        loop {
            match engine.decide(decision.clone()).await {
                Ok(verdict) => {
                    assert!(matches!(verdict, Verdict::Accepted | Verdict::AlreadyApplied), "{verdict:?}");
                    break;
                }
                Err(refused) => assert_eq!(refused, full()),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_right_whichever_write_finds_the_disk_full_for_a_while() {
    let mut number = 1;
    while with_a_full_disk_from(number).await {
        number += 1;
    }
    assert!(number > 50, "only {number} writes");
}
