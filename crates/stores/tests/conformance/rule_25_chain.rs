//! Rule 25: every store extends the hash chain of a run with each commit, and all of them compute the same hashes.

use std::sync::Arc;

use engine::store::{Append, CommittedEvent, Page, RunFilter, StoreError};
use machine::chain::{ChainHead, CommitContent, anchor, link};
use machine::checkpoint::Checkpoint;
use machine::event::InterruptCause;
use machine::event_codec;
use machine::id::RunId;
use machine::inbox::Item;
use machine::projection_rows::ProjectionRows;

use crate::fixture::{Fixture, World};
use crate::sample_data;
use crate::worker::{claim, held, parked, queued, started};

const fn stored_name(checkpoint: Checkpoint) -> &'static str {
    match checkpoint {
        Checkpoint::UserMessage => "user_message",
        Checkpoint::AssistantTurn => "assistant_turn",
        Checkpoint::ToolResults => "tool_results",
        Checkpoint::ReplayResults => "replay_results",
        Checkpoint::Waiting => "waiting",
        Checkpoint::RunFinished => "run_finished",
    }
}

/// Compares the head of a run with the one that follows from its events. Returns the head and the number of commits.
async fn expect_whole_chain(world: &World, run: &RunId) -> (ChainHead, usize) {
    let revision = world.store.run(&world.tenant, run).await.unwrap().unwrap().control.unwrap().revision;
    let log = world.store.events(&world.tenant, run, 0, 10_000).await.unwrap();
    let (mut hash, mut commits, mut lines) = (anchor(&revision, 1), 0, Vec::new());
    for CommittedEvent { event, checkpoint } in log.iter().map(|entry| entry.decoded().unwrap()) {
        lines.push(event_codec::encode(event).unwrap());
        let Some(checkpoint) = checkpoint else { continue };
        let content = CommitContent {
            tenant: world.tenant.as_str(),
            run: run.as_str(),
            first_seq: event.seq + 1 - lines.len() as u64,
            last_seq: event.seq,
            checkpoint: stored_name(*checkpoint),
            body: &lines.join("\n"),
        };
        hash = link(&hash, &content.hash());
        lines.clear();
        commits += 1;
    }
    assert_eq!(lines, [] as [String; 0], "every event is in a commit");
    let expected = ChainHead { starts_at: 1, hash };
    assert_eq!(world.store.chain_head(&world.tenant, run).await.unwrap(), Some(expected), "{run}");
    (expected, commits)
}

pub(crate) async fn rule_25_every_commit_extends_the_chain_of_its_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let run = RunId::from("run");
    let mut worker = started(&world, "thr", "run").await;
    let (created, _) = expect_whole_chain(&world, &run).await;
    worker.asks(&[("call", "echo")]);
    worker.commit(&world).await.unwrap();
    let (asked, _) = expect_whole_chain(&world, &run).await;
    worker.succeeds("call");
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let (ended, commits) = expect_whole_chain(&world, &run).await;
    assert_eq!(commits, 3);
    assert!(created != asked && asked != ended && ended != created, "each commit has another hash");
}

pub(crate) async fn rule_25_queued_runs_children_and_accepted_decisions_are_chained<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    sample_data::populate(&world).await;
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let runs = world.store.runs(&world.tenant, &RunFilter::default(), &page).await.unwrap().items;
    assert!(runs.iter().any(|run| run.control.as_ref().unwrap().parent.is_some()), "one of them is a child");
    for run in &runs {
        expect_whole_chain(&world, &run.id).await;
    }
}

pub(crate) async fn rule_25_a_commit_without_events_and_a_refused_one_leave_the_head<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "transfer").await;
    let run = RunId::from("run");
    let before = expect_whole_chain(&world, &run).await;
    let empty = |expected_version| Append {
        expected_seq: worker.run.control.seq,
        expected_version,
        events: Vec::new(),
        control: Arc::new(worker.run.control.clone()),
        consumed: Vec::new(),
        accepted: Vec::new(),
        spawn: Vec::new(),
        deliver: Vec::new(),
        rows: ProjectionRows::default(),
    };
    let refused = world.store.append(&worker.lease, empty(worker.version + 1)).await;
    assert_eq!(refused.unwrap_err(), StoreError::Behind);
    world.store.append(&worker.lease, empty(worker.version)).await.unwrap();
    assert_eq!(expect_whole_chain(&world, &run).await, before);
    world.store.load(&worker.lease).await.unwrap();
}

pub(crate) async fn rule_25_the_end_of_an_undecoded_run_is_chained<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let worker = claim(&world, "run").await.unwrap();
    world.submit_accepted("run", Item::Interrupt { cause: InterruptCause::Person("ann".into()) }).await;
    world.store.end_undecoded(&worker.lease).await.unwrap();
    assert_eq!(expect_whole_chain(&world, &"run".into()).await.1, 3);
}

pub(crate) async fn rule_25_a_chain_continues_after_a_crash<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let world = fixture.crash(world).await;
    let mut worker = claim(&world, "run").await.unwrap();
    worker.take_over();
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("ann".into()) });
    worker.commit(&world).await.unwrap();
    assert_eq!(expect_whole_chain(&world, &"run".into()).await.1, 3);
}

/// Every store computes these hashes, and so does every later version: an exported head must stay comparable.
pub(crate) async fn rule_25_hashes_are_the_same_in_every_store<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let other = world.for_tenant("other");
    queued(&other, "thr", "run").await;
    let run = RunId::from("run");
    let parked = expect_whole_chain(&world, &run).await.0.hash.to_string();
    let queued = expect_whole_chain(&other, &run).await.0.hash.to_string();
    assert_eq!(
        [parked.as_str(), queued.as_str()],
        [
            "5ab53f8d399f5234d4087803481f86a38e983c45baf327ed74ca4206972d857d",
            "47b9ff5b4d264c11714132d6df3b3f9b0018071272f8ef78c04716d502da03d5"
        ]
    );
    let missing = world.store.chain_head(&"stranger".into(), &run).await;
    assert_eq!(missing.unwrap_err(), StoreError::NotFound);
}
