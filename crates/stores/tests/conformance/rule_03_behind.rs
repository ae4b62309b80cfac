//! Rule 3: an accepted answer is heard before anything that closes what it answers.

use std::sync::Arc;

use engine::store::Refused;
use machine::Input;
use machine::decision::{Decision, DecisionAction};
use machine::event::InterruptCause;
use machine::inbox::{Item, Ticket, Verdict};
use machine::policy::OnReject;
use machine::rows::{ApprovalStatus, ShownStatus};
use tokio::sync::Barrier;

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{EXPIRES_IN_MS, Worker, approve, arguments_of, held, reject, started};

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

/// The inbox rows of a run, by their place.
async fn tickets(world: &World, worker: &Worker) -> Vec<(Ticket, Item)> {
    world.store.load(&worker.lease).await.unwrap().inbox
}

pub(crate) async fn rule_03_an_expiry_does_not_overtake_an_accepted_decision<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    assert_eq!(submit(&world, "run", Item::Decision(decision.clone())).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;

    world.clock.advance(EXPIRES_IN_MS);
    worker.say(&Input::DeadlineReached);
    assert_eq!(worker.append().rows.closed.len(), 1);
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);

    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
}

pub(crate) async fn rule_03_an_expiry_closes_what_nobody_answered<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    world.clock.advance(EXPIRES_IN_MS);
    worker.say(&Input::DeadlineReached);
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Expired);
}

pub(crate) async fn rule_03_an_interrupt_at_the_worker_does_not_overtake_an_accepted_decision<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    world.tell("run", Item::Decision(decision.clone())).await;
    worker.accept(interrupt());
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    worker.reload(&world).await;
    worker.drain();
    worker.accept(interrupt());
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
    assert_eq!(world.run("run").await.status, ShownStatus::Interrupted);
}

pub(crate) async fn rule_03_the_order_counts_within_one_commit_too<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "transfer")]);
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("a", None, approve());
    world.tell("run", Item::Decision(decision.clone())).await;
    world.tell("run", interrupt()).await;
    let rows = tickets(&world, &worker).await;
    let before = snapshot(&world, &[&worker.lease]).await;

    for (ticket, item) in rows.iter().rev() {
        worker.hear_row(*ticket, item);
    }
    assert_eq!(worker.append().consumed.len(), 2);
    assert_eq!(
        worker.commit(&world).await,
        Err(Refused::Behind),
        "both rows are consumed, the wrong one first"
    );
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);

    worker.reload(&world).await;
    for (ticket, item) in &rows {
        worker.hear_row(*ticket, item);
    }
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Approved);
}

pub(crate) async fn rule_03_an_unheard_decision_holds_up_only_what_it_answers<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "echo")]);
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("a", None, approve());
    world.tell("run", Item::Decision(decision)).await;
    worker.succeeds("b");
    worker.commit(&world).await.unwrap();
}

pub(crate) async fn rule_03_a_decision_that_came_first_may_close_what_a_later_one_answers<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks_without_gates(&[("a", "transfer"), ("b", "transfer")]);
    worker.pass_gate("b");
    worker.commit(&world).await.unwrap();
    let second = worker.decision("b", None, approve());
    // Only one that came early can: it ends nothing before its call is held.
    let action = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let first = Decision { call: "a".into(), suspension: "sus_none".into(), action, ..second.clone() };
    let first = Item::Early { decision: first, digest: arguments_of("a").digest() };
    assert_eq!(submit(&world, "run", first).await, Verdict::Accepted);
    let (ticket, item) = tickets(&world, &worker).await.remove(0);
    assert_eq!(submit(&world, "run", Item::Decision(second.clone())).await, Verdict::Accepted);
    worker.pass_gate("a");
    worker.commit(&world).await.unwrap();
    worker.hear_row(ticket, &item);
    assert_eq!(worker.append().rows.closed.len(), 2);
    worker.commit(&world).await.unwrap();
    assert_eq!(status(&world, &worker, &second).await, ApprovalStatus::Rejected);
}

pub(crate) async fn rule_03_a_decision_at_the_worker_loses_against_one_that_was_faster<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let faster = worker.decision("call_run", Some("faster"), reject());
    let slower = worker.decision("call_run", Some("slower"), approve());
    world.tell("run", Item::Decision(faster.clone())).await;
    let before = snapshot(&world, &[&worker.lease]).await;
    worker.accept(Item::Decision(slower));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    worker.reload(&world).await;
    // Also where it closes nothing itself.
    worker.accept_unheard(Item::Decision(worker.decision("call_run", Some("slower"), approve())));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    let remembered = world.store.decision(&world.tenant, &"run".into(), &"slower".into()).await.unwrap();
    assert_eq!(remembered, None);
}

pub(crate) async fn rule_03_what_is_closed_takes_no_decision_at_the_worker<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    worker.accept(Item::Decision(decision.clone()));
    worker.commit(&world).await.unwrap();
    worker.accept_unheard(Item::Decision(decision));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
}

pub(crate) async fn rule_03_one_suspension_takes_one_answer_in_a_commit<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let first = worker.decision("call_run", None, approve());
    let second = worker.decision("call_run", None, reject());
    worker.accept(Item::Decision(first));
    worker.accept_unheard(Item::Decision(second));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
}

pub(crate) async fn rule_03_nothing_is_accepted_after_an_accepted_interrupt<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(worker.decision("call_run", None, approve()));
    assert_eq!(submit(&world, "run", interrupt()).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;
    for late in [decision, interrupt()] {
        worker.reload(&world).await;
        worker.accept(late);
        assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
        assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    }
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, ShownStatus::Interrupted);
}

pub(crate) async fn rule_03_a_row_that_closed_nothing_answers_nothing_any_more<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "urgent").await;
    let decision = worker.decision("call_run", None, approve());
    world.tell("run", Item::Decision(decision.clone())).await;
    let ticket = tickets(&world, &worker).await[0].0;
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
            worker.say(&Input::DeadlineReached);
            let expired = worker.commit(&world).await;
            let verdict = person.await.unwrap();
            match (expired, verdict.is_taken()) {
                (Ok(_), false) => {
                    assert_eq!(status(&world, &worker, &decision).await, ApprovalStatus::Expired);
                }
                (Err(Refused::Behind), true) => {
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
