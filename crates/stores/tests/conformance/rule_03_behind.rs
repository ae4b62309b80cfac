//! Rule 3: the store refuses a commit if its worker has not seen every accepted item. The machine decides what the
//! worker does with the items it has seen.

use std::sync::Arc;

use engine::store::StoreError;
use machine::Input;
use machine::decision::{Decision, DecisionAction};
use machine::event::InterruptCause;
use machine::id::RunId;
use machine::inbox::{Item, Verdict};
use machine::policy::{OnBusy, OnReject};
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};
use machine::suspension::Held;
use tokio::sync::Barrier;

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{
    EXPIRES_IN_MS, Worker, approve, arguments_of, claim, creation, held, order, parked, reject, started,
    success,
};

fn interrupt() -> Item {
    Item::Interrupt { cause: InterruptCause::Person("bob".into()) }
}

async fn submit(world: &World, run: &str, item: Item) -> Verdict {
    world.store.submit(&world.tenant, &run.into(), item).await.unwrap()
}

async fn status(world: &World, worker: &Worker, decision: &Decision) -> ApprovalStatus {
    assert_eq!(world.tenant, worker.lease.tenant);
    world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap().status
}

/// The stored version of the run.
async fn version(world: &World, worker: &Worker) -> u64 {
    world.store.load(&worker.lease).await.unwrap().version
}

/// The commit is refused and changes nothing. It succeeds once the worker has read its inbox. Returns the inbox items.
async fn is_behind_until_it_looks(world: &World, worker: &mut Worker) -> Vec<Item> {
    let before = snapshot(world, &[&worker.lease]).await;
    assert_eq!(worker.commit(world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(world, &[&worker.lease]).await, before);
    let rows = worker.poll_inbox(world).await;
    worker.commit(world).await.unwrap();
    rows.into_iter().map(|(_, item)| item).collect()
}

pub(crate) async fn rule_03_the_version_rises_with_every_item_and_every_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    let created = worker.version;
    assert_eq!(version(&world, &worker).await, created);
    worker.asks(&[("a", "transfer"), ("b", "transfer")]);
    let appended = worker.commit(&world).await.unwrap();
    assert_eq!((appended.version, version(&world, &worker).await), (created + 1, created + 1));
    let decision = worker.decision("a", Some("d"), approve());
    world.submit_accepted("run", Item::Decision(decision.clone())).await;
    assert_eq!(version(&world, &worker).await, created + 2);
    // A refused item does not change the version.
    assert_eq!(submit(&world, "run", Item::Decision(decision)).await, Verdict::AlreadyApplied);
    let other = worker.decision("a", None, reject());
    assert!(!submit(&world, "run", Item::Decision(other)).await.is_taken());
    assert_eq!(version(&world, &worker).await, created + 2);
    worker.reload(&world).await;
    worker.drain();
    // The item is accepted and consumed in one commit, which raises the version once.
    worker.accept(Item::Decision(worker.decision("b", None, approve())));
    assert_eq!(worker.commit(&world).await.unwrap().version, created + 3);
    assert_eq!(version(&world, &worker).await, created + 3);
}

pub(crate) async fn rule_03_a_claim_gives_the_version_with_the_inbox<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = parked(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    world.submit_accepted("run", Item::Decision(decision)).await;
    let mut claimed = claim(&world, "run").await.unwrap();
    assert_eq!((claimed.version, claimed.inbox.len()), (worker.version + 1, 1));
    claimed.take_over();
    claimed.commit(&world).await.unwrap();
}

pub(crate) async fn rule_03_a_commit_is_refused_until_its_worker_has_seen_every_item<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "echo"), ("c", "echo"), ("d", "echo"), ("e", "echo")]);
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("a", None, approve());
    let early = Decision { call: "b".into(), suspension: "sus_none".into(), ..decision.clone() };
    let early = Item::Early { decision: early, digest: arguments_of("b").digest() };
    let late = Item::LateAnswer { step: 1, call: "b".into(), attempt: 1, outcome: success() };
    // Rows that the worker has seen may stay in the inbox: the store does not check what the worker does with them.
    for (item, call) in [(Item::Decision(decision), "c"), (early, "d"), (late, "e")] {
        assert_eq!(submit(&world, "run", item.clone()).await, Verdict::Accepted);
        worker.succeeds(call);
        let waiting = is_behind_until_it_looks(&world, &mut worker).await;
        assert_eq!(waiting.last(), Some(&item));
    }
    assert_eq!(worker.poll_inbox(&world).await.len(), 3);
}

pub(crate) async fn rule_03_what_another_run_delivers_counts_too<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut parent = started(&world, "thr", "parent").await;
    parent.asks(&[("delegate", "researcher"), ("a", "echo")]);
    parent.commit(&world).await.unwrap();
    let child = delegated_to(&parent, "delegate");
    let mut child = claim(&world, child.as_str()).await.unwrap();
    child.take_over();
    child.apply_input(&Input::Start { after: None });
    child.commit(&world).await.unwrap();
    child.finish_with("found it");
    child.commit(&world).await.unwrap();
    parent.succeeds("a");
    let waiting = is_behind_until_it_looks(&world, &mut parent).await;
    assert!(matches!(waiting.as_slice(), [Item::ChildEnded(_)]), "{waiting:?}");

    let mut front = started(&world, "other", "front").await;
    front.asks(&[("b", "echo")]);
    front.commit(&world).await.unwrap();
    let create = creation(&world, order("other", "next"), OnBusy::Interrupt, false).await;
    world.store.create(create).await.unwrap();
    front.succeeds("b");
    let waiting = is_behind_until_it_looks(&world, &mut front).await;
    assert!(matches!(waiting.as_slice(), [Item::Interrupt { .. }]), "{waiting:?}");
}

/// The run that works on this call.
fn delegated_to(parent: &Worker, call: &str) -> RunId {
    match &parent.call(call).suspension().unwrap().held {
        Held::ChildRun { run, .. } => run.clone(),
        held => panic!("{held:?}"),
    }
}

pub(crate) async fn rule_03_an_expiry_does_not_overtake_an_accepted_decision<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    assert_eq!(submit(&world, "run", Item::Decision(decision.clone())).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;

    world.clock.advance(EXPIRES_IN_MS);
    worker.apply_input(&Input::DeadlineReached);
    assert_eq!(worker.append().rows.closed.len(), 1);
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);

    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
}

pub(crate) async fn rule_03_an_expiry_closes_an_unanswered_approval<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    world.clock.advance(EXPIRES_IN_MS);
    worker.apply_input(&Input::DeadlineReached);
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Expired);
}

pub(crate) async fn rule_03_an_interrupt_at_the_worker_does_not_overtake_an_accepted_decision<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    world.submit_accepted("run", Item::Decision(decision.clone())).await;
    worker.accept(interrupt());
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    worker.reload(&world).await;
    worker.drain();
    worker.accept(interrupt());
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
    assert_eq!(world.run("run").await.status, PublicRunStatus::Interrupted);
}

pub(crate) async fn rule_03_a_decision_that_came_first_may_close_what_a_later_one_answers<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks_without_gates(&[("a", "transfer"), ("b", "transfer")]);
    worker.pass_gate("b");
    worker.commit(&world).await.unwrap();
    let second = worker.decision("b", None, approve());
    // Only an early decision can do this: it ends nothing before its call is held.
    let action = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let first = Decision { call: "a".into(), suspension: "sus_none".into(), action, ..second.clone() };
    let first = Item::Early { decision: first, digest: arguments_of("a").digest() };
    assert_eq!(submit(&world, "run", first).await, Verdict::Accepted);
    assert_eq!(submit(&world, "run", Item::Decision(second.clone())).await, Verdict::Accepted);
    let (ticket, item) = worker.poll_inbox(&world).await.remove(0);
    worker.pass_gate("a");
    worker.commit(&world).await.unwrap();
    worker.process_row(ticket, &item);
    assert_eq!(worker.append().rows.closed.len(), 2);
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &second).await, ApprovalStatus::Rejected);
}

pub(crate) async fn rule_03_a_decision_at_the_worker_loses_against_one_that_was_faster<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let faster = worker.decision("call_run", Some("faster"), reject());
    let slower = worker.decision("call_run", Some("slower"), approve());
    world.submit_accepted("run", Item::Decision(faster.clone())).await;
    let before = snapshot(&world, &[&worker.lease]).await;
    worker.accept(Item::Decision(slower));
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    let remembered = world.store.decision(&world.tenant, &"run".into(), &"slower".into()).await.unwrap();
    assert_eq!(remembered, None);
}

pub(crate) async fn rule_03_nothing_is_accepted_after_an_accepted_interrupt<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(worker.decision("call_run", None, approve()));
    assert_eq!(submit(&world, "run", interrupt()).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;
    worker.accept(decision);
    worker.accept(interrupt());
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::Interrupted);
}

pub(crate) async fn rule_03_a_row_that_closed_nothing_answers_nothing_any_more<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    world.submit_accepted("run", Item::Decision(decision.clone())).await;
    let ticket = worker.poll_inbox(&world).await[0].0;
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert!(shown.answered);
    worker.consume(ticket);
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert!(!shown.answered && shown.status == ApprovalStatus::Pending);
    let other = worker.decision("call_run", None, reject());
    assert_eq!(submit(&world, "run", Item::Decision(other)).await, Verdict::Accepted);
}

pub(crate) async fn rule_03_an_expiry_and_a_decision_race_and_one_of_them_wins<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut tasks = Vec::new();
    for index in 0..40 {
        let run = format!("run_{index}");
        let worker = held(&world, &format!("thr_{index}"), &run, "urgent").await;
        tasks.push((run, worker));
    }
    let decisions: Vec<Decision> =
        tasks.iter().map(|(run, worker)| worker.decision(&format!("call_{run}"), None, approve())).collect();
    world.clock.advance(EXPIRES_IN_MS);
    let races = tasks.into_iter().zip(decisions).map(|((run, mut worker), decision)| {
        let world = world.clone();
        tokio::spawn(async move {
            let start = Arc::new(Barrier::new(2));
            let (there, their_world) = (start.clone(), world.clone());
            let item = Item::Decision(decision.clone());
            let person = tokio::spawn(async move {
                there.wait().await;
                submit(&their_world, &run, item).await
            });
            start.wait().await;
            worker.apply_input(&Input::DeadlineReached);
            let expired = worker.commit(&world).await;
            let verdict = person.await.unwrap();
            match (expired, verdict.is_taken()) {
                (Ok(_), false) => {
                    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Expired);
                }
                (Err(StoreError::Behind), true) => {
                    worker.reload(&world).await;
                    worker.drain();
                    worker.commit(&world).await.unwrap();
                    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
                }
                (expired, taken) => panic!("the expiry: {expired:?}; the decision was taken: {taken}"),
            }
        })
    });
    for race in races.collect::<Vec<_>>() {
        race.await.unwrap();
    }
}

pub(crate) async fn rule_03_an_interrupt_and_the_last_commit_race_and_one_of_them_wins<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut races = Vec::new();
    for index in 0..40 {
        let (run, world) = (format!("run_{index}"), world.clone());
        let mut worker = started(&world, &format!("thr_{index}"), &run).await;
        races.push(tokio::spawn(async move {
            let start = Arc::new(Barrier::new(2));
            let (there, their_world, their_run) = (start.clone(), world.clone(), run.clone());
            let person = tokio::spawn(async move {
                there.wait().await;
                submit(&their_world, &their_run, interrupt()).await
            });
            worker.finish_with("done");
            start.wait().await;
            let ended = worker.commit(&world).await;
            match (ended, person.await.unwrap()) {
                (Ok(_), Verdict::Refused(_)) => {
                    assert_eq!(world.run(&run).await.status, PublicRunStatus::Completed);
                }
                (Err(StoreError::Behind), Verdict::Accepted) => {
                    worker.reload(&world).await;
                    worker.drain();
                    worker.commit(&world).await.unwrap();
                    assert_eq!(world.run(&run).await.status, PublicRunStatus::Interrupted);
                }
                (ended, verdict) => panic!("the last commit: {ended:?}; the interrupt: {verdict:?}"),
            }
        }));
    }
    for race in races {
        race.await.unwrap();
    }
}
