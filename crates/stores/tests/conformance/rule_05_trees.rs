//! Rule 5: approvals and admission see a run together with the runs that work for it.

use engine::store::{ApprovalFilter, Create, Page, StoreError};
use machine::Input;
use machine::id::RunId;
use machine::policy::OnBusy;
use machine::projection_rows::ApprovalStatus;
use machine::thread::{Admission, Busy, FrontState, IfBusy, ThreadState};

use crate::fixture::{Fixture, World};
use crate::rule_05_other_runs::{child_of, family};
use crate::worker::{Worker, approve, claim, creation, held, order, started};

/// The child delegates once more. Returns the worker of the run below it, which has started.
async fn grandchild_of(world: &World, child: &mut Worker, calls: &[(&str, &str)]) -> Worker {
    child.asks(calls);
    child.commit(world).await.unwrap();
    let run = child_of(child, calls[0].0);
    let mut grandchild = claim(world, run.as_str()).await.unwrap();
    grandchild.take_over();
    grandchild.apply_input(&Input::Start { after: None });
    grandchild.commit(world).await.unwrap();
    grandchild
}

/// A filter for a run and everything below it.
fn below(run: &RunId) -> ApprovalFilter {
    ApprovalFilter { descendants: true, ..ApprovalFilter::for_run(run) }
}

fn through(thread: &str) -> ApprovalFilter {
    ApprovalFilter { thread: Some(thread.into()), ..ApprovalFilter::default() }
}

/// The calls that are listed, in pages of this size.
async fn calls(world: &World, filter: &ApprovalFilter, limit: usize) -> Vec<String> {
    let mut calls = Vec::new();
    let mut page = Page { cursor: None, limit };
    loop {
        let listed = world.store.approvals(&world.tenant, filter, &page).await.unwrap();
        calls.extend(listed.items.iter().map(|view| view.call.to_string()));
        page.cursor = listed.next;
        if page.cursor.is_none() {
            return calls;
        }
    }
}

pub(crate) async fn rule_05_an_approval_is_listed_for_every_run_and_thread_on_its_path<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (parent, mut child) = family(&world).await;
    let mut grandchild =
        grandchild_of(&world, &mut child, &[("deeper", "researcher"), ("own", "transfer")]).await;
    world.clock.advance(1);
    grandchild.asks(&[("pay", "transfer"), ("pick", "pick_file")]);
    grandchild.commit(&world).await.unwrap();
    held(&world, "other", "bystander", "transfer").await;
    let trees = [
        (&parent, ["own", "pay"].as_slice()),
        (&child, ["own", "pay"].as_slice()),
        (&grandchild, ["pay"].as_slice()),
    ];
    for (worker, expected) in trees {
        let (run, thread) = (&worker.lease.run, worker.lease.thread.as_str());
        assert_eq!(calls(&world, &below(run), 10).await, expected, "{run}");
        assert_eq!(calls(&world, &through(thread), 10).await, expected, "{thread}");
        let both = ApprovalFilter { thread: Some("thr".into()), ..below(run) };
        assert_eq!(calls(&world, &both, 10).await, expected, "{run} of the tree of thr");
        let elsewhere = ApprovalFilter { thread: Some("other".into()), ..below(run) };
        assert!(calls(&world, &elsewhere, 10).await.is_empty());
        assert!(calls(&world.for_tenant("stranger"), &below(run), 10).await.is_empty());
    }
    assert!(calls(&world, &ApprovalFilter::for_run(&parent.lease.run), 10).await.is_empty(), "its own");
    assert_eq!(calls(&world, &ApprovalFilter::for_run(&child.lease.run), 10).await, ["own"]);

    let decision = grandchild.decision("pay", None, approve());
    grandchild.accept(machine::inbox::Item::Decision(decision));
    grandchild.commit(&world).await.unwrap();
    let of = |status| ApprovalFilter { status, ..below(&parent.lease.run) };
    assert_eq!(calls(&world, &of(Some(ApprovalStatus::Pending)), 10).await, ["own"]);
    assert_eq!(calls(&world, &of(Some(ApprovalStatus::Approved)), 10).await, ["pay"]);
    assert_eq!(calls(&world, &of(None), 10).await, ["own", "pay"]);
}

pub(crate) async fn rule_05_pages_of_a_tree_cover_everything_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let (parent, mut child) = family(&world).await;
    let asked = [("deeper", "researcher"), ("c_1", "transfer"), ("c_2", "transfer"), ("c_3", "transfer")];
    let mut grandchild = grandchild_of(&world, &mut child, &asked).await;
    world.clock.advance(1);
    grandchild.asks(&[("g_1", "transfer"), ("g_2", "transfer")]);
    grandchild.commit(&world).await.unwrap();
    let filter = below(&parent.lease.run);
    let all = calls(&world, &filter, 100).await;
    assert_eq!(all.len(), 5);
    for limit in [1, 2, 3] {
        assert_eq!(calls(&world, &filter, limit).await, all, "pages of {limit}");
        assert_eq!(calls(&world, &through("thr"), limit).await, all, "pages of {limit}");
    }
    // An approval that was on the first page is decided before the second page is read.
    let page = Page { cursor: None, limit: 2 };
    let first = world.store.approvals(&world.tenant, &filter, &page).await.unwrap();
    let decision = child.decision(first.items[0].call.as_str(), None, approve());
    child.accept(machine::inbox::Item::Decision(decision));
    child.commit(&world).await.unwrap();
    let second = world.store.approvals(&world.tenant, &filter, &Page { cursor: first.next, limit: 2 }).await;
    let second: Vec<String> = second.unwrap().items.iter().map(|view| view.call.to_string()).collect();
    assert_eq!(second, all[2..4]);
}

async fn front(world: &World) -> (FrontState, bool) {
    match world.store.thread(&world.tenant, &"thr".into()).await.unwrap().state {
        ThreadState::Busy { front_is, in_doubt, front, .. } if front.as_str() == "parent" => {
            (front_is, in_doubt)
        }
        other => panic!("{other:?}"),
    }
}

/// How a message is admitted behind the parent.
async fn admitted(world: &World, run: &str, if_busy: IfBusy) -> Result<Admission, StoreError> {
    let create = creation(world, order("thr", run), OnBusy::Reject, false).await;
    world.store.create(Create { if_busy, ..create }).await.map(|created| created.admission)
}

pub(crate) async fn rule_05_a_run_counts_as_executing_while_a_descendant_does_not_wait<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let if_executes = IfBusy { executes: OnBusy::Enqueue, waits: OnBusy::Reject };
    let if_waits = IfBusy { executes: OnBusy::Reject, waits: OnBusy::Enqueue };
    let refused = || Err(StoreError::Busy(Busy::ActiveRun("parent".into())));
    let mut parent = started(&world, "thr", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(&world).await.unwrap();
    assert_eq!(front(&world).await, (FrontState::Executing, false), "its child is queued");
    let run = child_of(&parent, "delegate");
    let mut child = claim(&world, run.as_str()).await.unwrap();
    child.take_over();
    child.apply_input(&Input::Start { after: None });
    child.commit(&world).await.unwrap();
    assert_eq!(front(&world).await, (FrontState::Executing, false), "its child runs");
    assert_eq!(admitted(&world, "run_1", if_waits).await, refused());
    assert_eq!(admitted(&world, "run_2", if_executes).await, Ok(Admission::Enqueue));
    // The child waits, and the run that it delegated to executes.
    let mut grandchild = grandchild_of(&world, &mut child, &[("deeper", "researcher")]).await;
    assert_eq!(front(&world).await, (FrontState::Executing, false), "its grandchild runs");
    assert_eq!(admitted(&world, "run_3", if_waits).await, refused());
    assert_eq!(admitted(&world, "run_4", if_executes).await, Ok(Admission::Enqueue));
    grandchild.asks(&[("pay", "transfer")]);
    grandchild.commit(&world).await.unwrap();
    assert_eq!(front(&world).await, (FrontState::Waiting, false), "all of them wait");
    assert_eq!(admitted(&world, "run_5", if_executes).await, refused());
    assert_eq!(admitted(&world, "run_6", if_waits).await, Ok(Admission::Enqueue));
    // A descendant that has ended does not count.
    grandchild.accept(machine::inbox::Item::Interrupt {
        cause: machine::event::InterruptCause::Person("bob".into()),
    });
    grandchild.commit(&world).await.unwrap();
    assert_eq!(front(&world).await, (FrontState::Waiting, false), "its grandchild has ended");
}

pub(crate) async fn rule_05_a_run_with_a_descendant_in_doubt_is_not_superseded<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let (_parent, mut child) = family(&world).await;
    let mut grandchild = grandchild_of(&world, &mut child, &[("deeper", "researcher")]).await;
    let run = grandchild.lease.run.clone();
    grandchild.asks(&[("pay", "post")]);
    grandchild.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let mut grandchild = claim(&world, run.as_str()).await.unwrap();
    grandchild.take_over();
    grandchild.commit(&world).await.unwrap();
    assert_eq!(front(&world).await, (FrontState::Waiting, true));
    let supersede = IfBusy { executes: OnBusy::Interrupt, waits: OnBusy::Interrupt };
    let refused = Err(StoreError::Busy(Busy::InDoubt("parent".into())));
    assert_eq!(admitted(&world, "pushy", supersede).await, refused);
    assert!(!world.run("parent").await.interrupt_accepted, "nothing was interrupted");
    let give_up = machine::decision::DecisionAction::Cancel { reason: None, then: None };
    let decision = grandchild.decision("pay", None, give_up);
    grandchild.accept(machine::inbox::Item::Decision(decision));
    grandchild.commit(&world).await.unwrap();
    assert_eq!(admitted(&world, "pushy", supersede).await, Ok(Admission::Supersede));
}
