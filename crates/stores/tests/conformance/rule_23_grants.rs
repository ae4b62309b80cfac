//! Rule 23: a grant is a row of its own. It is valid for one thread of one tenant until it is revoked.

use engine::store::{AutoApproval, GRANTS_READ_MAX, GrantFilter, GrantView, Lease, Page, StoreError};
use machine::decision::{DecisionAction, Resume};
use machine::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use machine::id::GrantId;
use machine::inbox::Item;

use crate::fixture::{Fixture, World};
use crate::rule_06_tenants::all;
use crate::worker::{Worker, held, started, tool};

/// Approves the held call of a run, and all later calls of the same tool.
async fn allow_from_here_on(world: &World, worker: &mut Worker, call: &str) -> GrantId {
    let resume = Resume { apply_to_future: true, ..Resume::default() };
    let decision = worker.decision(call, None, DecisionAction::Resume(resume));
    let id = machine::id::grant_id(&decision.suspension);
    worker.accept(Item::Decision(decision));
    worker.succeeds(call);
    worker.finish_with("done");
    worker.commit(world).await.unwrap();
    id
}

async fn auto_approve(world: &World, thread: &str, id: &str, by: &str) {
    let given = AutoApproval { id: id.into(), by: by.into() };
    world
        .store
        .set_auto_approve(&world.tenant, &thread.into(), Some(&given), &"tester".into())
        .await
        .unwrap();
}

async fn for_transfer(world: &World, lease: &Lease) -> Vec<String> {
    let grants = world.store.grants_for(lease, &"transfer".into()).await.unwrap();
    grants.iter().map(|grant| grant.id.to_string()).collect()
}

async fn listed(world: &World, filter: &GrantFilter, limit: usize) -> Vec<GrantView> {
    all(limit, |page| async move { world.store.grants(&world.tenant, filter, &page).await }).await
}

async fn ids(world: &World) -> Vec<String> {
    let listed = listed(world, &GrantFilter::default(), 1).await;
    listed.into_iter().map(|view| view.grant.id.to_string()).collect()
}

pub(crate) async fn rule_23_a_grant_counts_for_its_thread_as_it_was_given<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let given_at = world.clock.now();
    let id = allow_from_here_on(&world, &mut worker, "call_run").await;
    let later = started(&world, "thr", "later").await;
    let elsewhere = started(&world, "thr_2", "elsewhere").await;
    let grant = Grant {
        id: id.clone(),
        by: "ana".into(),
        covers: GrantCoverage::Tool(ToolGrant {
            tool: "transfer".into(),
            agent: Some("assistant".into()),
            definition: tool("transfer").definition,
            reasons: vec![HoldReason::Tool],
        }),
    };
    let store = &world.store;
    assert_eq!(
        store.grants_for(&later.lease, &"transfer".into()).await.unwrap(),
        std::slice::from_ref(&grant)
    );
    assert_eq!(store.grants_for(&later.lease, &"urgent".into()).await.unwrap(), []);
    assert_eq!(store.grants_for(&elsewhere.lease, &"transfer".into()).await.unwrap(), []);
    let view = GrantView { grant, is_unreadable: false, thread: "thr".into(), since: given_at };
    assert_eq!(store.grant(&world.tenant, &id).await.unwrap(), Some(view.clone()));
    assert_eq!(listed(&world, &GrantFilter::default(), 10).await, [view]);
    let thread = store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!((thread.auto_approved_by, thread.approved_tools), (None, vec!["transfer".into()]));
    let threads = store.threads(&world.tenant, &Page::default()).await.unwrap().items;
    assert_eq!(threads.iter().map(|thread| thread.approved_tools.len()).sum::<usize>(), 1);
}

pub(crate) async fn rule_23_auto_approve_replaces_itself_and_its_end_revokes_every_grant_of_the_thread<
    F: Fixture,
>() {
    let (_fixture, world) = F::open().await;
    for thread in ["thr", "thr_2"] {
        let run = format!("run_{thread}");
        let mut worker = held(&world, thread, &run, "transfer").await;
        allow_from_here_on(&world, &mut worker, &format!("call_{run}")).await;
    }
    let mut later = held(&world, "thr", "later", "transfer").await;
    let elsewhere = started(&world, "thr_2", "elsewhere").await;
    let of_the_tool = for_transfer(&world, &later.lease).await;
    assert_eq!(of_the_tool.len(), 1);
    auto_approve(&world, "thr", "grt_first", "ana").await;
    world.clock.advance(5);
    auto_approve(&world, "thr", "grt_second", "bo").await;
    // The grant for every tool comes first, however old the others are.
    assert_eq!(for_transfer(&world, &later.lease).await, ["grt_second".to_owned(), of_the_tool[0].clone()]);
    let granted = world.store.grants_for(&later.lease, &"urgent".into()).await.unwrap();
    let everything = Grant { id: "grt_second".into(), by: "bo".into(), covers: GrantCoverage::Thread };
    assert_eq!(granted, [everything]);
    let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!(thread.auto_approved_by, Some("bo".into()));
    world.store.set_auto_approve(&world.tenant, &"thr".into(), None, &"tester".into()).await.unwrap();
    assert_eq!(for_transfer(&world, &later.lease).await, [""; 0]);
    assert_eq!(
        for_transfer(&world, &elsewhere.lease).await.len(),
        1,
        "the grants of another thread are kept"
    );
    let thread = world.store.thread(&world.tenant, &"thr".into()).await.unwrap();
    assert_eq!((thread.auto_approved_by, thread.approved_tools), (None, Vec::new()));
    // A revoked grant may be given again.
    allow_from_here_on(&world, &mut later, "call_later").await;
    let last = started(&world, "thr", "last").await;
    assert_eq!(for_transfer(&world, &last.lease).await.len(), 1);
}

pub(crate) async fn rule_23_a_grant_is_revoked_once_and_stays_revoked<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let id = allow_from_here_on(&world, &mut worker, "call_run").await;
    auto_approve(&world, "thr", "grt_all", "ana").await;
    world.store.revoke_grant(&world.tenant, &id, &"tester".into()).await.unwrap();
    assert_eq!(
        world.store.revoke_grant(&world.tenant, &id, &"tester".into()).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(world.store.grant(&world.tenant, &id).await.unwrap(), None);
    assert_eq!(ids(&world).await, ["grt_all"]);
    let world = fixture.crash(world).await;
    assert_eq!(ids(&world).await, ["grt_all"]);
    let later = started(&world, "thr", "later").await;
    assert_eq!(for_transfer(&world, &later.lease).await, ["grt_all"]);
}

pub(crate) async fn rule_23_another_tenant_finds_and_revokes_nothing<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let id = allow_from_here_on(&world, &mut worker, "call_run").await;
    auto_approve(&world, "thr", "grt_all", "ana").await;
    let other = world.for_tenant("other");
    other.store.put_thread(&other.tenant, &"thr".into(), &serde_json::Value::Null).await.unwrap();
    assert_eq!(ids(&other).await, [""; 0]);
    for id in [id, "grt_all".into()] {
        assert_eq!(other.store.grant(&other.tenant, &id).await.unwrap(), None);
        assert_eq!(
            other.store.revoke_grant(&other.tenant, &id, &"tester".into()).await,
            Err(StoreError::NotFound)
        );
    }
    other.store.set_auto_approve(&other.tenant, &"thr".into(), None, &"tester".into()).await.unwrap();
    // The same id names another grant in the other tenant.
    auto_approve(&other, "thr", "grt_all", "eve").await;
    other.store.revoke_grant(&other.tenant, &"grt_all".into(), &"tester".into()).await.unwrap();
    assert_eq!(ids(&world).await.len(), 2);
}

pub(crate) async fn rule_23_grants_are_listed_newest_first_in_pages_and_by_giver<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    // The third is that of a person for whom the key `portal` acts.
    for (number, by) in [(1, "ana"), (2, "bo"), (3, "ana\u{1f}portal"), (4, "ana")] {
        let thread = format!("thr_{number}");
        world
            .store
            .put_thread(&world.tenant, &thread.as_str().into(), &serde_json::Value::Null)
            .await
            .unwrap();
        auto_approve(&world, &thread, &format!("grt_{number}"), by).await;
        // The last two have the same time.
        world.clock.advance(if number < 3 { 5 } else { 0 });
    }
    let by_ana = GrantFilter { by: Some("ana".into()) };
    for limit in 1..=5 {
        let names = |views: Vec<GrantView>| -> Vec<String> {
            views.into_iter().map(|view| view.grant.id.to_string()).collect()
        };
        let everyone = names(listed(&world, &GrantFilter::default(), limit).await);
        assert_eq!(everyone, ["grt_4", "grt_3", "grt_2", "grt_1"], "{limit}");
        assert_eq!(names(listed(&world, &by_ana, limit).await), ["grt_4", "grt_3", "grt_1"], "{limit}");
        let by_key = GrantFilter { by: Some("portal".into()) };
        assert_eq!(names(listed(&world, &by_key, limit).await), ["grt_3"], "{limit}");
        for part in ["an", "na", "port", "ortal", "", "%", "ana\u{1f}", "ana portal"] {
            let by_part = GrantFilter { by: Some(part.into()) };
            assert_eq!(names(listed(&world, &by_part, limit).await), [""; 0], "{part:?}");
        }
    }
    let bad = Page { cursor: Some("nonsense".into()), limit: 1 };
    let refused = world.store.grants(&world.tenant, &by_ana, &bad).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
}

pub(crate) async fn rule_23_grants_go_with_their_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let id = allow_from_here_on(&world, &mut worker, "call_run").await;
    auto_approve(&world, "thr", "grt_all", "ana").await;
    world.store.put_thread(&world.tenant, &"stays".into(), &serde_json::Value::Null).await.unwrap();
    auto_approve(&world, "stays", "grt_stays", "ana").await;
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(world.store.grant(&world.tenant, &id).await.unwrap(), None);
    assert_eq!(ids(&world).await, ["grt_stays"]);
}

pub(crate) async fn rule_23_grants_read_for_one_call_are_bounded<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    for number in 0..=GRANTS_READ_MAX {
        let call = format!("call_{number}");
        worker.asks(&[(&call, "transfer")]);
        worker.commit(&world).await.unwrap();
        let resume = Resume { apply_to_future: true, ..Resume::default() };
        worker.accept(Item::Decision(worker.decision(&call, None, DecisionAction::Resume(resume))));
        worker.succeeds(&call);
        worker.commit(&world).await.unwrap();
    }
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let later = started(&world, "thr", "later").await;
    assert_eq!(for_transfer(&world, &later.lease).await.len(), GRANTS_READ_MAX);
    assert_eq!(listed(&world, &GrantFilter::default(), 1_000).await.len(), GRANTS_READ_MAX + 1);
}
