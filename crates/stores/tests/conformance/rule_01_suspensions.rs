//! Rule 1, suspensions: a row has the sequence numbers of the events that opened and closed it. A list can be limited
//! to rows that changed after an event.

use engine::store::{ApprovalFilter, Page, SuspensionView};
use machine::event::{Event, Fact};
use machine::inbox::Item;
use machine::projection_rows::ApprovalStatus;

use crate::fixture::{Fixture, World};
use crate::worker::{approve, reject, started};

/// Sorted by log order, because a list may return suspensions of the same moment in any order.
async fn changed(world: &World, after: u64) -> Vec<SuspensionView> {
    let filter = ApprovalFilter::changed(&"run".into(), after);
    let mut found = world.store.approvals(&world.tenant, &filter, &Page::default()).await.unwrap().items;
    found.sort_by_key(SuspensionView::changed_seq);
    found
}

async fn calls_changed(world: &World, after: u64) -> Vec<String> {
    changed(world, after).await.iter().map(|view| view.call.to_string()).collect()
}

async fn event(world: &World, seq: u64) -> Event {
    let mut found = world.store.events(&world.tenant, &"run".into(), seq - 1, 1).await.unwrap();
    (*found.remove(0).readable().unwrap().event).clone()
}

pub(crate) async fn rule_01_a_suspension_names_the_events_that_opened_and_closed_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.asks(&[("a", "transfer"), ("b", "transfer"), ("c", "transfer")]);
    worker.commit(&world).await.unwrap();
    for view in changed(&world, 0).await {
        assert_eq!((view.closed_seq, view.changed_seq()), (None, view.opened_seq));
        let Fact::ApprovalRequested(opened) = event(&world, view.opened_seq).await.fact else {
            panic!("event {} opens nothing", view.opened_seq)
        };
        assert_eq!(opened.suspension_id, view.id);
    }
    let before = worker.run.control.seq;
    assert_eq!(calls_changed(&world, before).await, [""; 0]);
    worker.accept(Item::Decision(worker.decision("b", None, approve())));
    worker.commit(&world).await.unwrap();
    let middle = worker.run.control.seq;
    worker.accept(Item::Decision(worker.decision("c", None, reject())));
    worker.commit(&world).await.unwrap();
    assert_eq!(calls_changed(&world, 0).await, ["a", "b", "c"]);
    assert_eq!(calls_changed(&world, before).await, ["b", "c"]);
    assert_eq!(calls_changed(&world, middle).await, ["c"]);
    assert_eq!(calls_changed(&world, worker.run.control.seq).await, [""; 0]);
    let closed = changed(&world, before).await;
    let facts = [
        event(&world, closed[0].changed_seq()).await.fact,
        event(&world, closed[1].changed_seq()).await.fact,
    ];
    assert!(
        matches!(&facts[0], Fact::ToolApproved { approval_id, .. } if *approval_id == closed[0].id),
        "{:?}",
        facts[0]
    );
    assert!(matches!(&facts[1], Fact::ToolDenied { .. }), "{:?}", facts[1]);
    let pending = ApprovalFilter {
        status: Some(ApprovalStatus::Pending),
        ..ApprovalFilter::changed(&"run".into(), before)
    };
    let listed = world.store.approvals(&world.tenant, &pending, &Page::default()).await.unwrap();
    assert_eq!(listed.items, [], "no pending suspension has changed");
    // Without a run the filter has no effect.
    let every = ApprovalFilter { run: None, ..ApprovalFilter::changed(&"run".into(), 1_000) };
    assert_eq!(world.store.approvals(&world.tenant, &every, &Page::default()).await.unwrap().items.len(), 3);
}
