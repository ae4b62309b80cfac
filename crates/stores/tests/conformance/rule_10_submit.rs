//! Rule 10: one transaction decides which item wins. A refused item leaves no trace.

use engine::store::{ApprovalFilter, Page, StoreError};
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::InterruptCause;
use machine::id::{Digest, SuspensionId};
use machine::inbox::{Item, Refusal, Verdict};
use machine::policy::OnReject;
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};

use crate::fixture::{Fixture, World};
use crate::snapshot::snapshot;
use crate::worker::{
    EXPIRES_IN_MS, Worker, approve, arguments_of, claim, held, next, order, parked, reject, started,
    started_with, success, tool,
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
    assert!(answered.answered && answered.status == ApprovalStatus::Approved);
    assert_eq!(next(&world, 10).await, ["run"]);
}

pub(crate) async fn rule_10_an_unknown_run_is_not_found<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let verdict = world.store.submit(&world.tenant, &"missing".into(), interrupt()).await;
    assert_eq!(verdict, Err(StoreError::NotFound));
}

pub(crate) async fn rule_10_what_is_not_taken_leaves_nothing_behind<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "urgent").await;
    let good = worker.decision("call_run", Some("d1"), approve());
    let no = Resume { payload: Payload::Result(std::sync::Arc::new(false.into())), ..Resume::default() };
    let seen_other = Resume { expect_digest: Some(Digest::sha256(b"other")), ..Resume::default() };
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

pub(crate) async fn rule_10_the_first_decision_wins<F: Fixture>() {
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

pub(crate) async fn rule_10_of_a_hundred_concurrent_decisions_one_wins<F: Fixture>() {
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

fn end_run() -> DecisionAction {
    DecisionAction::Cancel { reason: Some("no".into()), then: Some(OnReject::EndRun) }
}

/// A run with two calls, each of which waits for an approval.
async fn two_held(world: &World) -> Worker {
    let mut worker = started(world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "transfer")]);
    worker.commit(world).await.unwrap();
    worker
}

pub(crate) async fn rule_10_nothing_is_accepted_after_a_denial_that_ends_the_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = two_held(&world).await;
    let denial = worker.decision("a", Some("first"), end_run());
    let behind = Item::Decision(worker.decision("b", Some("second"), approve()));
    assert_eq!(submit(&world, "run", Item::Decision(denial.clone())).await, Verdict::Accepted);
    let before = snapshot(&world, &[&worker.lease]).await;
    assert_eq!(submit(&world, "run", behind.clone()).await, Verdict::Refused(Refusal::RunOver));
    let remembered = world.store.decision(&world.tenant, &"run".into(), &"second".into()).await;
    assert_eq!(remembered, Ok(None));
    // Nor is it accepted at the worker, which has not read its inbox yet.
    worker.accept(behind.clone());
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    assert_eq!(snapshot(&world, &[&worker.lease]).await, before);
    // The denial itself is recognized when it is sent again. The run ends once its worker processes the denial.
    assert_eq!(submit(&world, "run", Item::Decision(denial)).await, Verdict::AlreadyApplied);
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::Completed);
    assert_eq!(submit(&world, "run", behind).await, Verdict::Refused(Refusal::RunOver));
}

pub(crate) async fn rule_10_an_interrupt_is_accepted_after_a_denial_that_ends_the_run<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "post")]);
    worker.commit(&world).await.unwrap();
    world.submit_accepted("run", Item::Decision(worker.decision("a", None, end_run()))).await;
    worker.reload(&world).await;
    worker.drain();
    // The worker accepts the interrupt in the same commit that processes the denial.
    worker.accept(interrupt());
    worker.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::Interrupted);
    let worker = held(&world, "thr_2", "run_2", "transfer").await;
    world.submit_accepted("run_2", Item::Decision(worker.decision("call_run_2", None, end_run()))).await;
    assert_eq!(submit(&world, "run_2", interrupt()).await, Verdict::Accepted);
}

pub(crate) async fn rule_10_a_denial_that_ends_nothing_leaves_the_others_to_be_decided<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = two_held(&world).await;
    world.submit_accepted("run", Item::Decision(worker.decision("a", None, reject()))).await;
    let other = Item::Decision(worker.decision("b", None, approve()));
    assert_eq!(submit(&world, "run", other).await, Verdict::Accepted);
}

pub(crate) async fn rule_10_a_denial_without_an_effect_of_its_own_follows_the_policy<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut order = order("thr", "run");
    order.policy.on_reject = Some(OnReject::EndRun);
    let mut worker = started_with(&world, order).await;
    worker.asks(&[("a", "transfer"), ("b", "transfer")]);
    worker.commit(&world).await.unwrap();
    world.submit_accepted("run", Item::Decision(worker.decision("a", None, reject()))).await;
    let other = Item::Decision(worker.decision("b", None, approve()));
    assert_eq!(submit(&world, "run", other).await, Verdict::Refused(Refusal::RunOver));
}

pub(crate) async fn rule_10_a_denial_that_closed_nothing_ends_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = two_held(&world).await;
    world.submit_accepted("run", Item::Decision(worker.decision("a", None, end_run()))).await;
    worker.reload(&world).await;
    let ticket = worker.inbox[0].0;
    worker.consume(ticket);
    worker.commit(&world).await.unwrap();
    let other = Item::Decision(worker.decision("b", None, approve()));
    assert_eq!(submit(&world, "run", other).await, Verdict::Accepted);
}

pub(crate) async fn rule_10_an_early_denial_ends_the_run_from_when_it_answers_an_approval<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks_without_gates(&[("a", "transfer"), ("b", "transfer")]);
    worker.commit(&world).await.unwrap();
    let mut item = early(&worker, "b", arguments_of("b").digest());
    if let Item::Early { decision, .. } = &mut item {
        decision.action = end_run();
    }
    assert_eq!(submit(&world, "run", item).await, Verdict::Accepted);
    let other = early(&worker, "a", Digest::sha256(b"other arguments"));
    let other = match other {
        Item::Early { decision, digest } => {
            Item::Early { decision: Decision { id: Some("other".into()), ..decision }, digest }
        }
        other => other,
    };
    assert_eq!(submit(&world, "run", other).await, Verdict::Accepted, "nothing is denied yet");
    worker.poll_inbox(&world).await;
    worker.pass_gates();
    worker.commit(&world).await.unwrap();
    let decision = Item::Decision(worker.decision("a", None, approve()));
    assert_eq!(submit(&world, "run", decision).await, Verdict::Refused(Refusal::RunOver));
}

pub(crate) async fn rule_10_an_answered_approval_shows_its_answer_and_is_not_pending<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = two_held(&world).await;
    let edited = arguments_of("edited");
    let resume =
        Resume { arguments: Some(edited.clone()), note: Some("half of it".into()), ..Resume::default() };
    let yes = worker.decision("a", None, DecisionAction::Resume(resume));
    let no = worker.decision("b", None, reject());
    let shown = |decision: &Decision| {
        let (store, tenant, id) = (world.store.clone(), world.tenant.clone(), decision.suspension.clone());
        async move { store.suspension(&tenant, &id).await.unwrap().unwrap() }
    };
    let listed = |status| {
        let filter = ApprovalFilter { status, ..ApprovalFilter::default() };
        listed_in_all_ways(&world, filter)
    };
    world.submit_accepted("run", Item::Decision(yes.clone())).await;
    let view = shown(&yes).await;
    assert_eq!((view.status, view.answered), (ApprovalStatus::Approved, true));
    assert_eq!(view.decided_by, Some("ana".into()));
    assert_eq!(view.decided_at, Some(yes.accepted_at));
    assert_eq!((view.note.as_deref(), view.reason.as_deref()), (Some("half of it"), None));
    assert_eq!(view.edited, Some(edited));
    let only_the_other = vec![no.suspension.clone()];
    assert_eq!(listed(Some(ApprovalStatus::Pending)).await, only_the_other);
    world.submit_accepted("run", Item::Decision(no.clone())).await;
    let view = shown(&no).await;
    assert_eq!((view.status, view.reason.as_deref()), (ApprovalStatus::Rejected, Some("no")));
    assert_eq!((view.decided_by, view.edited), (Some("ana".into()), None));
    assert_eq!(listed(Some(ApprovalStatus::Pending)).await, []);
    // A list without a status filter contains all of them.
    assert_eq!(listed(None).await.len(), 2);
    assert_eq!(listed(Some(ApprovalStatus::Approved)).await, std::slice::from_ref(&yes.suspension));
    assert_eq!(listed(Some(ApprovalStatus::Rejected)).await, only_the_other);
    assert_eq!(listed(Some(ApprovalStatus::Answered)).await, []);
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let view = shown(&yes).await;
    assert_eq!((view.status, view.answered, view.edited), (ApprovalStatus::Approved, false, None));
    assert_eq!(listed(Some(ApprovalStatus::Approved)).await, [yes.suspension]);
    assert_eq!(listed(Some(ApprovalStatus::Rejected)).await, only_the_other);
    assert_eq!(listed(None).await.len(), 2);
}

/// Lists by tenant, by thread and by run, and asserts that all three return the same.
async fn listed_in_all_ways(world: &World, filter: ApprovalFilter) -> Vec<SuspensionId> {
    let mut ways = Vec::new();
    for (run, thread) in [(None, None), (None, Some("thr".into())), (Some("run".into()), None)] {
        let filter = ApprovalFilter { run, thread, ..filter.clone() };
        let listed = world.store.approvals(&world.tenant, &filter, &Page::default()).await.unwrap();
        assert_eq!(listed.next, None);
        ways.push(listed.items.into_iter().map(|view| view.id).collect::<Vec<_>>());
    }
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
    ways.remove(0)
}

pub(crate) async fn rule_10_a_changed_tool_is_reported_and_the_item_accepted<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, approve());
    let changed = Decision { definition_now: Some(Digest::sha256(b"definition 2")), ..decision.clone() };
    assert_eq!(submit(&world, "run", Item::Decision(changed)).await, Verdict::ToolChanged);
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    let void = (ApprovalStatus::Expired, Some("system".into()), Some("tool_changed"));
    assert_eq!(
        (shown.status, shown.decided_by, shown.reason.as_deref()),
        void,
        "before the worker processes it"
    );
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!(
        (shown.status, shown.decided_by, shown.reason.as_deref()),
        void,
        "after the worker has processed it"
    );
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

/// The model has asked for two calls, and both are waiting at the gate.
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
    worker.poll_inbox(&world).await;
    worker.pass_gates();
    worker.commit(&world).await.unwrap();
    let decision = worker.decision("b", None, reject());
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert!(shown.answered, "the early decision has answered it");
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.answered), (ApprovalStatus::Approved, false));
}

pub(crate) async fn rule_10_an_early_decision_is_for_its_arguments_alone<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = at_the_gate(&world).await;
    let item = early(&worker, "b", Digest::sha256(b"other arguments"));
    assert_eq!(submit(&world, "run", item).await, Verdict::Accepted);
    let mut second = early(&worker, "b", arguments_of("b").digest());
    if let Item::Early { decision, .. } = &mut second {
        decision.id = Some("second".into());
    }
    let verdict = submit(&world, "run", second).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::NotHeld), "at most one early decision is kept per call");
    worker.poll_inbox(&world).await;
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
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.decided_by), (ApprovalStatus::Answered, Some("system".into())));
    assert_eq!(submit(&world, "run", answer(1)).await, Verdict::Refused(Refusal::Answered));
    let verdict = submit(&world, "run", Item::Decision(decision.clone())).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Answered));
    worker.accept(Item::Decision(decision.clone()));
    assert_eq!(worker.commit(&world).await, Err(StoreError::Behind));
    worker.reload(&world).await;
    worker.drain();
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!(shown.status, ApprovalStatus::Answered);
}
