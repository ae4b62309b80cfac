//! Rule 10: one transaction decides who wins, and what is not taken leaves nothing behind.

use engine::store::Refused;
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::InterruptCause;
use machine::id::Digest;
use machine::inbox::{Item, Refusal, Verdict};
use machine::rows::ApprovalStatus;

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{
    EXPIRES_IN_MS, Worker, approve, arguments_of, claim, held, next, parked, reject, started, success, tool,
};

fn interrupt() -> Item {
    Item::Interrupt { cause: InterruptCause::Person("bob".into()) }
}

async fn submit(world: &World, run: &str, item: Item) -> Verdict {
    world.store.submit(&world.tenant, &run.into(), item).await.unwrap()
}

pub(crate) async fn rule_10_a_taken_decision_marks_the_row_and_wakes_the_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let parked = parked(&world, "thr", "run", "transfer").await;
    let decision = parked.decision("call_run", None, approve());
    let shown = || world.store.suspension(&world.tenant, &decision.suspension);
    assert!(!shown().await.unwrap().unwrap().answered);
    assert_eq!(submit(&world, "run", Item::Decision(decision.clone())).await, Verdict::Accepted);
    let answered = shown().await.unwrap().unwrap();
    assert!(answered.answered && answered.status == ApprovalStatus::Pending);
    assert_eq!(next(&world, 10).await, ["run"]);
}

pub(crate) async fn rule_10_an_unknown_run_is_not_found<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let verdict = world.store.submit(&world.tenant, &"nobody".into(), interrupt()).await;
    assert_eq!(verdict, Err(Refused::NotFound));
}

pub(crate) async fn rule_10_what_is_not_taken_leaves_nothing_behind<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "urgent").await;
    let good = worker.decision("call_run", Some("d1"), approve());
    let no = Resume { payload: Payload::Result(std::sync::Arc::new(false.into())), ..Resume::default() };
    let seen_other = Resume { expect_digest: Some(Digest::of(b"other")), ..Resume::default() };
    let with = |action| Decision { action, ..good.clone() };
    let late = good.accepted_at.plus_ms(EXPIRES_IN_MS);
    let bad = [
        (Decision { suspension: "apr_other".into(), ..good.clone() }, Some(Refusal::NotHeld)),
        (Decision { call: "nothing".into(), ..good.clone() }, Some(Refusal::NotHeld)),
        (Decision { accepted_at: late, ..good.clone() }, Some(Refusal::Expired)),
        (with(DecisionAction::Resume(seen_other)), Some(Refusal::DigestMismatch)),
        (with(DecisionAction::Resume(no)), None),
    ];
    let before = snapshot(&world, &[&worker.lease]).await;
    for (decision, expected) in bad {
        let verdict = submit(&world, "run", Item::Decision(decision)).await;
        match (verdict, expected) {
            (Verdict::Refused(Refusal::Invalid(_)), None) => {}
            (verdict, expected) => assert_eq!(Some(verdict), expected.map(Verdict::Refused)),
        }
        assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
        let remembered = world.store.decision(&world.tenant, &"run".into(), &"d1".into()).await;
        assert_eq!(remembered, Ok(None));
    }
    assert_eq!(submit(&world, "run", Item::Decision(good)).await, Verdict::Accepted);
}

pub(crate) async fn rule_10_somebody_else_was_faster<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "transfer").await;
    let first = worker.decision("call_run", None, approve());
    let second = worker.decision("call_run", None, reject());
    assert_eq!(submit(&world, "run", Item::Decision(first)).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;
    let verdict = submit(&world, "run", Item::Decision(second)).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
}

pub(crate) async fn rule_10_of_a_hundred_who_decide_one_wins<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = parked(&world, "thr", "run", "transfer").await;
    let tasks: Vec<_> = (0..100)
        .map(|index| {
            let action = if index % 2 == 0 { approve() } else { reject() };
            let decision = worker.decision("call_run", Some(&format!("d{index}")), action);
            let world = world.clone();
            tokio::spawn(async move {
                let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
                (decision, verdict)
            })
        })
        .collect();
    let mut taken = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            (decision, Verdict::Accepted) => taken.push(decision),
            (_, verdict) => assert_eq!(verdict, Verdict::Refused(Refusal::Answered)),
        }
    }
    assert_eq!(taken.len(), 1);
    let worker = claim(&world, "run").await.unwrap();
    let inbox: Vec<Item> = worker.inbox.into_iter().map(|(_, item)| item).collect();
    assert_eq!(inbox, [Item::Decision(taken.remove(0))]);
}

pub(crate) async fn rule_10_a_run_on_its_way_out_takes_no_decision<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = Item::Decision(worker.decision("call_run", None, approve()));
    assert!(!world.run("run").await.interrupt_accepted);
    assert_eq!(submit(&world, "run", interrupt()).await, Verdict::Accepted);
    assert!(world.run("run").await.interrupt_accepted);
    assert_eq!(submit(&world, "run", interrupt()).await, Verdict::AlreadyApplied);
    assert_eq!(submit(&world, "run", decision.clone()).await, Verdict::Refused(Refusal::RunOver));
    worker.reload(&world).await;
    assert_eq!(worker.inbox.len(), 1);
    worker.drain();
    worker.commit(&world).await.unwrap();
    for item in [decision, interrupt()] {
        assert_eq!(submit(&world, "run", item).await, Verdict::Refused(Refusal::RunOver));
    }
    assert!(next(&world, 10).await.is_empty(), "an ended run is never ready");
}

pub(crate) async fn rule_10_an_interrupt_accepted_at_the_worker_counts_too<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    worker.accept(interrupt());
    worker.commit(&world).await.unwrap();
    assert!(world.run("run").await.interrupt_accepted);
}

pub(crate) async fn rule_10_a_changed_tool_is_said_and_the_item_taken<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    let changed = Decision { definition_now: Some(Digest::of(b"definition 2")), ..decision.clone() };
    assert_eq!(submit(&world, "run", Item::Decision(changed)).await, Verdict::ToolChanged);
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!(shown.status, ApprovalStatus::Expired);
    let again = worker.decision("call_run", None, approve());
    assert_ne!(again.suspension, decision.suspension);
    assert_eq!(submit(&world, "run", Item::Decision(again)).await, Verdict::Accepted);
}

/// A decision on a call before it is held.
fn early(worker: &Worker, call: &str, digest: Digest) -> Item {
    let decision = Decision {
        id: Some("early".into()),
        call: call.into(),
        suspension: "sus_none".into(),
        by: "ana".into(),
        accepted_at: worker.now(),
        definition_now: Some(tool("transfer").definition),
        action: approve(),
    };
    Item::Early { decision, digest }
}

/// The model has asked for two calls, and both stand at the gate.
async fn at_the_gate(world: &World) -> Worker {
    let mut worker = started(world, "thr", "run").await;
    worker.asks_without_gates(&[("a", "echo"), ("b", "transfer")]);
    worker.commit(world).await.unwrap();
    worker
}

pub(crate) async fn rule_10_an_early_decision_answers_the_approval_as_it_opens<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = at_the_gate(&world).await;
    let item = early(&worker, "b", arguments_of("b").digest());
    assert_eq!(submit(&world, "run", item.clone()).await, Verdict::Accepted);
    assert_eq!(submit(&world, "run", item.clone()).await, Verdict::AlreadyApplied);
    worker.pass_gates();
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("b", None, reject());
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert!(shown.answered, "nobody else can decide it");
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.accept(Item::Decision(decision.clone()));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.answered), (ApprovalStatus::Approved, false));
}

pub(crate) async fn rule_10_an_early_decision_is_for_its_arguments_alone<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = at_the_gate(&world).await;
    let item = early(&worker, "b", Digest::of(b"other arguments"));
    assert_eq!(submit(&world, "run", item).await, Verdict::Accepted);
    let mut second = early(&worker, "b", arguments_of("b").digest());
    if let Item::Early { decision, .. } = &mut second {
        decision.id = Some("second".into());
    }
    let verdict = submit(&world, "run", second).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::NotHeld), "one is kept for a call");
    worker.pass_gates();
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("b", None, reject());
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert!(!shown.answered);
    assert_eq!(submit(&world, "run", Item::Decision(decision)).await, Verdict::Accepted);
}

pub(crate) async fn rule_10_a_late_answer_settles_what_is_in_doubt<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "post")]);
    worker.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let mut worker = claim(&world, "run").await.unwrap();
    worker.take_over();
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("a", None, reject());
    let answer = |attempt| Item::LateAnswer { step: 1, call: "a".into(), attempt, outcome: success() };
    assert_eq!(submit(&world, "run", answer(2)).await, Verdict::Refused(Refusal::NotHeld));
    assert_eq!(submit(&world, "run", answer(1)).await, Verdict::Accepted);
    assert_eq!(submit(&world, "run", answer(1)).await, Verdict::Refused(Refusal::Answered));
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.accept(Item::Decision(decision.clone()));
    assert_eq!(worker.commit(&world).await, Err(Refused::Behind));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!(shown.status, ApprovalStatus::Answered);
}
