//! Rule 6: everything belongs to a tenant, and lists come in pages by time of creation and id.

use engine::store::{ApprovalFilter, AutoApproval, Claim, Lease, Listed, Page, RunFilter, StoreError};
use machine::event::InterruptCause;
use machine::inbox::Item;
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};
use serde_json::json;

use crate::fixture::{Fixture, World};
use crate::worker::{Worker, approve, claim, held, order, parked, queued, reject, started, started_with};

fn page(limit: usize, cursor: Option<String>) -> Page {
    Page { cursor, limit }
}

/// Reads all pages in order. Every page except the last must be full.
pub(crate) async fn all<T, Fut>(limit: usize, list: impl Fn(Page) -> Fut) -> Vec<T>
where
    Fut: Future<Output = Result<Listed<T>, StoreError>>,
{
    let mut items = Vec::new();
    let mut cursor = None;
    for _ in 0..1_000 {
        let listed = list(page(limit, cursor)).await.unwrap();
        assert!(listed.items.len() <= limit.max(1));
        assert!(listed.next.is_none() || listed.items.len() == limit.max(1));
        items.extend(listed.items);
        cursor = listed.next;
        if cursor.is_none() {
            return items;
        }
    }
    panic!("the list of pages does not end")
}

async fn run_names(world: &World, filter: &RunFilter, limit: usize) -> Vec<String> {
    let runs = all(limit, |page| async move { world.store.runs(&world.tenant, filter, &page).await }).await;
    runs.into_iter().map(|run| run.id.to_string()).collect()
}

async fn approval_calls(world: &World, filter: &ApprovalFilter, limit: usize) -> Vec<String> {
    let list = |page: Page| async move { world.store.approvals(&world.tenant, filter, &page).await };
    all(limit, list).await.into_iter().map(|approval| approval.call.to_string()).collect()
}

pub(crate) async fn rule_06_another_tenant_finds_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", Some("d1"), approve());
    world.submit_accepted("run", Item::Decision(decision.clone())).await;
    let World { store, tenant, .. } = world.for_tenant("other");
    let (run, thread) = (&worker.lease.run, &worker.lease.thread);
    assert_eq!(store.run(&tenant, run).await.unwrap(), None);
    let absent = engine::store::ThreadView::absent(thread.clone());
    assert_eq!(store.thread(&tenant, thread).await.unwrap(), absent);
    assert_eq!(store.suspension(&tenant, &decision.suspension).await.unwrap(), None);
    assert_eq!(store.decision(&tenant, run, &"d1".into()).await.unwrap(), None);
    assert_eq!(store.message(&tenant, thread, &"msg_user_run".into()).await.unwrap(), None);
    let log = store.events(&tenant, run, 0, 10).await;
    assert!(log == Err(StoreError::NotFound) || log == Ok(Vec::new()), "{log:?}");
    assert!(store.threads(&tenant, &Page::default()).await.unwrap().items.is_empty());
    assert!(store.runs(&tenant, &RunFilter::default(), &Page::default()).await.unwrap().items.is_empty());
    let every = ApprovalFilter { status: None, ..ApprovalFilter::default() };
    assert!(store.approvals(&tenant, &every, &Page::default()).await.unwrap().items.is_empty());
    let mine = ApprovalFilter { run: Some(run.clone()), ..ApprovalFilter::default() };
    assert!(store.approvals(&tenant, &mine, &Page::default()).await.unwrap().items.is_empty());
    let item = Item::Decision(worker.decision("call_run", None, reject()));
    assert_eq!(store.submit(&tenant, run, item).await, Err(StoreError::NotFound));
    let given = AutoApproval { id: "grt_eve".into(), by: "eve".into() };
    assert_eq!(
        store.set_auto_approve(&tenant, thread, Some(&given), &"tester".into()).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.set_auto_approve(&tenant, thread, None, &"tester".into()).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(store.delete_thread(&tenant, thread, &"tester".into()).await, Err(StoreError::NotFound));
    let lease = Lease { tenant: tenant.clone(), ..worker.lease.clone() };
    assert_eq!(store.append(&lease, worker.append()).await, Err(StoreError::Fenced));
    store.release(&worker.lease).await.unwrap();
    let claimed = store.claim(Claim::Run { tenant, run: run.clone() }).await;
    assert!(claimed == Err(StoreError::NotFound) || claimed == Ok(Vec::new()), "{claimed:?}");
}

pub(crate) async fn rule_06_two_tenants_may_use_the_same_names<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let other = world.for_tenant("other");
    let mut here = held(&world, "thr", "run", "transfer").await;
    let there = held(&other, "thr", "run", "transfer").await;
    here.accept(Item::Decision(here.decision("call_run", None, reject())));
    here.finish_with("done");
    here.commit(&world).await.unwrap();
    assert_eq!(world.run("run").await.status, PublicRunStatus::Completed);
    assert_eq!(other.run("run").await.status, PublicRunStatus::WaitingApproval);
    assert_eq!(other.run("run").await.control.as_ref(), Some(&there.run.control));
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(other.run("run").await.control.as_ref(), Some(&there.run.control));
    let listed = approval_calls(&other, &ApprovalFilter::default(), 10).await;
    assert_eq!(listed, ["call_run"]);
}

pub(crate) async fn rule_06_pages_of_runs_and_threads_cover_everything_once_newest_first<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    // Two runs share each creation time, so the id decides their order.
    for name in ["a", "d", "c", "f", "e", "b", "g"] {
        queued(&world, &format!("thr_{name}"), &format!("run_{name}")).await;
        queued(&world.for_tenant("other"), &format!("thr_{name}"), &format!("run_x{name}")).await;
        if ["d", "f", "b"].contains(&name) {
            world.clock.advance(1);
        }
    }
    let expected = ["g", "e", "b", "f", "c", "d", "a"];
    for limit in [1, 2, 3, 7, 100] {
        let runs = run_names(&world, &RunFilter::default(), limit).await;
        assert_eq!(runs, expected.map(|name| format!("run_{name}")), "limit {limit}");
        let list = |page: Page| {
            let world = world.clone();
            async move { world.store.threads(&world.tenant, &page).await }
        };
        let threads: Vec<String> =
            all(limit, list).await.into_iter().map(|thread| thread.id.to_string()).collect();
        assert_eq!(threads, expected.map(|name| format!("thr_{name}")), "limit {limit}");
    }
    let most = world.store.runs(&world.tenant, &RunFilter::default(), &page(usize::MAX, None)).await.unwrap();
    assert_eq!((most.items.len(), most.next), (7, None));
    let least = world.store.runs(&world.tenant, &RunFilter::default(), &page(0, None)).await.unwrap();
    assert_eq!(least.items.len(), 1, "a page has at least one item");
}

pub(crate) async fn rule_06_what_comes_in_between_two_pages_shifts_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for name in ["a", "b", "c"] {
        queued(&world, &format!("thr_{name}"), name).await;
        world.clock.advance(1);
    }
    let filter = RunFilter::default();
    let first = world.store.runs(&world.tenant, &filter, &page(2, None)).await.unwrap();
    queued(&world, "thr_d", "d").await;
    let second = world.store.runs(&world.tenant, &filter, &page(2, first.next)).await.unwrap();
    let names: Vec<&str> = first.items.iter().chain(&second.items).map(|run| run.id.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    assert_eq!(second.next, None);
}

pub(crate) async fn rule_06_an_unknown_cursor_is_refused<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    queued(&world, "thr", "run").await;
    let bad = page(10, Some("yesterday".into()));
    let World { store, tenant, .. } = &world;
    assert!(matches!(store.threads(tenant, &bad).await, Err(StoreError::Impossible(_))));
    assert!(matches!(store.runs(tenant, &RunFilter::default(), &bad).await, Err(StoreError::Impossible(_))));
    let approvals = store.approvals(tenant, &ApprovalFilter::default(), &bad).await;
    assert!(matches!(approvals, Err(StoreError::Impossible(_))));
}

pub(crate) async fn rule_06_runs_are_filtered_by_status_thread_and_agent<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for index in 0..6 {
        let mut order = order(&format!("thr_{}", index % 2), &format!("run_{index}"));
        order.agent = if index < 3 { "writer".into() } else { "reader".into() };
        let mut worker = started_with(&world, order).await;
        worker.finish_with("done");
        worker.commit(&world).await.unwrap();
        world.clock.advance(1);
    }
    parked(&world, "thr_0", "waits", "transfer").await;
    queued(&world, "thr_1", "queued").await;
    let filters = [
        (RunFilter { status: Some(PublicRunStatus::Queued), ..RunFilter::default() }, vec!["queued"]),
        (RunFilter { status: Some(PublicRunStatus::WaitingApproval), ..RunFilter::default() }, vec!["waits"]),
        (RunFilter { status: Some(PublicRunStatus::Failed), ..RunFilter::default() }, vec![]),
        (RunFilter { agent: Some("writer".into()), ..RunFilter::default() }, vec!["run_2", "run_1", "run_0"]),
        (
            RunFilter {
                status: Some(PublicRunStatus::Completed),
                thread: Some("thr_1".into()),
                agent: Some("reader".into()),
            },
            vec!["run_5", "run_3"],
        ),
    ];
    for (filter, expected) in filters {
        for limit in [1, 10] {
            assert_eq!(run_names(&world, &filter, limit).await, expected, "{filter:?}");
        }
    }
}

pub(crate) async fn rule_06_a_run_whose_interrupt_is_accepted_is_listed_as_interrupting<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut executes = started(&world, "thr_0", "executes").await;
    world.clock.advance(1);
    for index in 1..4 {
        parked(&world, &format!("thr_{index}"), &format!("waits_{index}"), "transfer").await;
        world.clock.advance(1);
    }
    queued(&world, "thr_4", "queued").await;
    let listed = |status, thread: Option<&str>| {
        let filter = RunFilter { status, thread: thread.map(Into::into), agent: None };
        let world = &world;
        async move {
            let runs = run_names(world, &filter, 1).await;
            assert_eq!(run_names(world, &filter, 10).await, runs);
            runs
        }
    };
    let of = |status| listed(Some(status), None);
    let nobody: [&str; 0] = [];
    assert_eq!(of(PublicRunStatus::Interrupting).await, nobody);
    let interrupt = || Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
    for run in ["executes", "waits_2", "queued"] {
        world.submit_accepted(run, interrupt()).await;
        assert_eq!(world.run(run).await.shown_status(), PublicRunStatus::Interrupting);
    }
    assert_eq!(of(PublicRunStatus::Interrupting).await, ["queued", "waits_2", "executes"]);
    assert_eq!(of(PublicRunStatus::WaitingApproval).await, ["waits_3", "waits_1"]);
    assert_eq!(of(PublicRunStatus::Running).await, nobody);
    assert_eq!(of(PublicRunStatus::Queued).await, nobody);
    assert_eq!(listed(None, None).await, ["queued", "waits_3", "waits_2", "waits_1", "executes"]);
    assert_eq!(listed(Some(PublicRunStatus::Interrupting), Some("thr_2")).await, ["waits_2"]);
    assert_eq!(listed(Some(PublicRunStatus::WaitingApproval), Some("thr_2")).await, nobody);
    assert_eq!(listed(Some(PublicRunStatus::WaitingApproval), Some("thr_1")).await, ["waits_1"]);
    executes.reload(&world).await;
    executes.drain();
    executes.commit(&world).await.unwrap();
    assert_eq!(of(PublicRunStatus::Interrupting).await, ["queued", "waits_2"]);
    assert_eq!(of(PublicRunStatus::Interrupted).await, ["executes"]);
    assert_eq!(listed(Some(PublicRunStatus::Interrupted), Some("thr_0")).await, ["executes"]);
}

pub(crate) async fn rule_06_approvals_are_listed_oldest_first_in_pages<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut expected = Vec::new();
    for index in 0..5 {
        let run = format!("run_{index}");
        let mut worker = started(&world, &format!("thr_{index}"), &run).await;
        let [one, two] = [format!("a_{index}"), format!("b_{index}")];
        // A call that the front end executes is not an approval.
        worker.asks(&[(&one, "transfer"), ("file", "pick_file"), (&two, "transfer")]);
        let mut ids: Vec<_> = [&one, &two]
            .map(|call| (worker.call(call).suspension().unwrap().id.clone(), call.clone()))
            .into();
        ids.sort();
        expected.extend(ids.into_iter().map(|(_, call)| call));
        worker.commit(&world).await.unwrap();
        if index == 2 {
            worker.accept(Item::Decision(worker.decision("a_2", None, reject())));
            worker.accept(Item::Decision(worker.decision("b_2", None, approve())));
            worker.commit(&world).await.unwrap();
        }
        world.clock.advance(1);
    }
    for limit in [1, 3, 100] {
        let every = ApprovalFilter { status: None, ..ApprovalFilter::default() };
        assert_eq!(approval_calls(&world, &every, limit).await, expected);
        let pending: Vec<String> = expected.iter().filter(|call| !call.ends_with('2')).cloned().collect();
        assert_eq!(approval_calls(&world, &ApprovalFilter::default(), limit).await, pending);
        let of = |status| ApprovalFilter { status: Some(status), ..ApprovalFilter::default() };
        assert_eq!(approval_calls(&world, &of(ApprovalStatus::Rejected), limit).await, ["a_2"]);
        assert_eq!(approval_calls(&world, &of(ApprovalStatus::Approved), limit).await, ["b_2"]);
        let of_run = ApprovalFilter { run: Some("run_1".into()), ..ApprovalFilter::default() };
        assert_eq!(approval_calls(&world, &of_run, limit).await.len(), 2);
        let of_thread = ApprovalFilter { thread: Some("thr_3".into()), ..ApprovalFilter::default() };
        assert_eq!(approval_calls(&world, &of_thread, limit).await.len(), 2);
    }
}

/// Processed and unprocessed answers alternate. Between two of one status are more unprocessed ones of the other status
/// than fit on a page.
pub(crate) async fn rule_06_pages_of_approvals_keep_answered_unprocessed_ones_in_order<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    let names: Vec<String> = (0..13).map(|index| format!("call_{index}")).collect();
    worker.asks(&names.iter().map(|name| (name.as_str(), "transfer")).collect::<Vec<_>>());
    worker.commit(&world).await.unwrap();
    let mut calls = names.clone();
    calls.sort_by_key(|call| worker.call(call).suspension().unwrap().id.clone());
    let is_approved = |place: usize| place.is_multiple_of(4);
    let decision = |worker: &Worker, place: usize| {
        let action = if is_approved(place) { approve() } else { reject() };
        Item::Decision(worker.decision(&calls[place], None, action))
    };
    for place in [0, 3] {
        let heard = decision(&worker, place);
        worker.accept(heard);
    }
    worker.commit(&world).await.unwrap();
    for place in (0..12).filter(|place| ![0, 3].contains(place)) {
        world.submit_accepted("run", decision(&worker, place)).await;
    }
    let those = |approved| {
        let places = (0..12).filter(move |place| is_approved(*place) == approved);
        places.map(|place| calls[place].clone()).collect::<Vec<_>>()
    };
    for (run, thread) in [(None, None), (None, Some("thr".into())), (Some("run".into()), None)] {
        for limit in [1, 2, 100] {
            let listed = |status| {
                let filter = ApprovalFilter {
                    status,
                    run: run.clone(),
                    thread: thread.clone(),
                    descendants: false,
                    changed_after: 0,
                };
                let world = &world;
                async move { approval_calls(world, &filter, limit).await }
            };
            assert_eq!(listed(Some(ApprovalStatus::Approved)).await, those(true));
            assert_eq!(listed(Some(ApprovalStatus::Rejected)).await, those(false));
            assert_eq!(listed(Some(ApprovalStatus::Expired)).await, [""; 0]);
            assert_eq!(listed(Some(ApprovalStatus::Pending)).await, [calls[12].as_str()]);
            assert_eq!(listed(None).await, calls);
        }
    }
}

pub(crate) async fn rule_06_a_closed_suspension_says_who_closed_it_and_when<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let opened_at = world.clock.now();
    world.clock.advance(40);
    let decision = worker.decision("call_run", None, reject());
    worker.accept(Item::Decision(decision.clone()));
    worker.commit(&world).await.unwrap();
    let shown = world.store.suspension(&world.tenant, &decision.suspension).await.unwrap().unwrap();
    assert_eq!((shown.created_at, shown.decided_at), (opened_at, Some(world.clock.now())));
    assert_eq!((shown.status, shown.answered), (ApprovalStatus::Rejected, false));
    assert_eq!(shown.decided_by.unwrap().as_str(), "ana");
    assert_eq!(shown.reason.as_deref(), Some("no"));
}

pub(crate) async fn rule_06_a_thread_keeps_what_was_put_first<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let put = |value| world.store.put_thread(&world.tenant, &"thr".into(), &value);
    assert_eq!(put(json!({"first": true})).await, Ok(true));
    world.clock.advance(5);
    assert_eq!(put(json!({"first": false})).await, Ok(false));
    let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!(thread.metadata, Some(json!({"first": true})));
    assert_eq!(thread.created_at.unwrap().0, 1_000_000);
}

pub(crate) async fn rule_06_a_thread_is_deleted_with_all_that_belongs_to_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", Some("d1"), reject());
    held(&world, "thr_2", "run_2", "transfer").await;
    let World { store, tenant, .. } = &world;
    assert_eq!(store.delete_thread(tenant, &"thr".into(), &"tester".into()).await, Err(StoreError::Stale));
    assert!(store.run(tenant, &"run".into()).await.unwrap().is_some());
    worker.accept(Item::Decision(decision.clone()));
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    store.delete_thread(tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(store.delete_thread(tenant, &"thr".into(), &"tester".into()).await, Err(StoreError::NotFound));
    assert_eq!(store.thread(tenant, &"thr".into()).await.unwrap().created_at, None);
    assert_eq!(store.run(tenant, &"run".into()).await.unwrap(), None);
    assert_eq!(store.suspension(tenant, &decision.suspension).await.unwrap(), None);
    assert_eq!(store.message(tenant, &"thr".into(), &"msg_user_run".into()).await.unwrap(), None);
    assert_eq!(run_names(&world, &RunFilter::default(), 10).await, ["run_2"]);
    let every = ApprovalFilter { status: None, ..ApprovalFilter::default() };
    assert_eq!(approval_calls(&world, &every, 10).await, ["call_run_2"]);
    // Its ids can be used again.
    started(&world, "thr", "run").await;
    assert!(claim(&world, "run").await.is_none());
}
