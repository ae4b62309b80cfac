//! Rule 25: the audit record has exactly what happened, each tenant's in a chain of its own.

use std::collections::BTreeMap;

use engine::store::{
    AuditFilter, AutoApproval, ConfigurationRecord, Deleted, Deletion, Page, RunFilter, StoreError, Tenant,
    seal_all,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry, ChainCheck, SealedRecord};
use machine::event::{Event, Fact};
use machine::inbox::Item;
use machine::suspension::SuspensionKind;
use serde_json::Value;

use crate::fixture::{Fixture, World};
use crate::sample_data::populate;
use crate::worker::{approve, claim, held, next_workers, parked, reject, started};

/// Run, action and principal.
type Recorded = (String, String, String);

async fn records(world: &World, filter: &AuditFilter) -> Vec<SealedRecord> {
    seal_all(&*world.store).await.unwrap();
    world.store.audit(&world.tenant, filter, 0, 1_000).await.unwrap()
}

async fn bodies(world: &World) -> Vec<String> {
    records(world, &AuditFilter::default()).await.into_iter().map(|record| record.body).collect()
}

/// What the records of the tenant say about runs, in order of runs and actions.
async fn recorded(world: &World) -> Vec<Recorded> {
    let text = |content: &Value, name: &str| content[name].as_str().unwrap_or_default().to_owned();
    let bodies = bodies(world).await;
    let contents = bodies.iter().map(|body| serde_json::from_str::<Value>(body).unwrap());
    let mut found: Vec<Recorded> = contents
        .filter(|content| content["run_id"].is_string())
        .map(|content| (text(&content, "run_id"), text(&content, "action"), text(&content, "by")))
        .collect();
    found.sort();
    found
}

/// What the logs say should be recorded. It follows the events, not the code that records them.
async fn decided_in_logs(world: &World) -> Vec<Recorded> {
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut found = Vec::new();
    for run in world.store.runs(&world.tenant, &RunFilter::default(), &page).await.unwrap().items {
        let log = world.store.events(&world.tenant, &run.id, 0, 10_000).await.unwrap();
        let mut kinds = BTreeMap::new();
        for entry in &log {
            let event = &entry.readable().unwrap().event;
            if let Some(opened) = event.fact.opened_suspension() {
                kinds.insert(opened.suspension_id.clone(), opened.held.kind());
            }
            let decided = decided(event, |id| kinds[id]);
            found.extend(decided.into_iter().map(|(action, by)| (run.id.to_string(), action.into(), by)));
        }
    }
    found.sort();
    found
}

fn decided(
    event: &Event,
    kind_of: impl Fn(&machine::id::SuspensionId) -> SuspensionKind,
) -> Vec<(&'static str, String)> {
    let one = |action, by: &machine::id::Principal| vec![(action, by.to_string())];
    match &event.fact {
        Fact::ToolApproved { by, covers, .. } if !covers.is_empty() => {
            vec![("approval.approved", by.to_string()), ("grant.given", by.to_string())]
        }
        Fact::ToolApproved { by, .. } => one("approval.approved", by),
        Fact::ToolDenied { by, expired: true, .. } => one("approval.expired", by),
        Fact::ToolDenied { by, expired: false, .. } => one("approval.rejected", by),
        Fact::ApprovalVoided { .. } => one("approval.voided", &"system".into()),
        Fact::ToolResumed { by, suspension_id, .. } => match kind_of(suspension_id) {
            SuspensionKind::ChildRun => Vec::new(),
            _ => one("suspension.answered", by),
        },
        Fact::ToolCancelled { by, suspension_id: Some(id), .. } => match kind_of(id) {
            SuspensionKind::ChildRun => Vec::new(),
            SuspensionKind::Approval => one("approval.rejected", by),
            _ => one("suspension.cancelled", by),
        },
        Fact::RunInterrupting { .. } => one("run.interrupted", &"system".into()),
        _ => Vec::new(),
    }
}

pub(crate) async fn rule_26_the_record_has_exactly_the_decisions_of_the_logs<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    populate(&world).await;
    assert_eq!(recorded(&world).await, decided_in_logs(&world).await);
    // What was accepted is recorded once its run has processed it, and not twice after a crash.
    let world = fixture.crash(world).await;
    for mut worker in next_workers(&world, 20).await {
        worker.take_over();
        worker.commit(&world).await.unwrap();
    }
    let expected = decided_in_logs(&world).await;
    assert_eq!(recorded(&world).await, expected);
    assert!(expected.len() >= 5, "{expected:?}");
    let world = fixture.crash(world).await;
    assert_eq!(recorded(&world).await, expected);
}

pub(crate) async fn rule_26_a_commit_that_is_refused_records_nothing<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let stale = worker.decision("call_run", Some("d1"), reject());
    worker.accept(Item::Decision(stale));
    let mut late = worker.append();
    late.expected_version += 1;
    assert_eq!(world.store.append(&worker.lease, late).await, Err(StoreError::Behind));
    assert_eq!(bodies(&world).await, [""; 0]);
    worker.commit(&world).await.unwrap();
    let world = fixture.crash(world).await;
    let found = recorded(&world).await;
    assert_eq!(found, [("run".to_owned(), "approval.rejected".to_owned(), "ana".to_owned())]);
}

pub(crate) async fn rule_26_a_decision_names_its_call_and_arguments<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let at = machine::audit::time_text(worker.now());
    let decision = worker.decision("call_run", Some("d1"), approve());
    let (id, digest) = (decision.suspension.clone(), crate::worker::arguments_of("call_run").digest());
    worker.accept(Item::Decision(decision));
    worker.commit(&world).await.unwrap();
    let expected = format!(
        r#"{{"action":"approval.approved","arguments_digest":"{digest}","at":"{at}","by":"ana","call_id":"call_run","detail":{{"decision_id":"d1","kind":"approval","tool":"transfer"}},"run_id":"run","suspension_id":"{id}","tenant":"acme","thread_id":"thr"}}"#
    );
    assert_eq!(bodies(&world).await, [expected]);
}

pub(crate) async fn rule_26_changes_without_a_run_are_recorded_with_their_actor<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = held(&world, "thr", "run", "transfer").await;
    let decision = worker.decision("call_run", None, reject());
    let id = decision.suspension.clone();
    worker.accept(Item::Decision(decision));
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let store = &world.store;
    let actor =
        Actor { via: Some("portal".into()), address: Some("10.0.0.7".into()), ..Actor::from("bo \"b\"") };
    let given = AutoApproval { id: "grt_all".into(), by: actor.principal() };
    store.set_auto_approve(&world.tenant, &"thr".into(), Some(&given), &actor).await.unwrap();
    store.revoke_grant(&world.tenant, &"grt_all".into(), &actor).await.unwrap();
    assert_eq!(store.revoke_grant(&world.tenant, &"grt_all".into(), &actor).await, Err(StoreError::NotFound));
    let again = AutoApproval { id: "grt_again".into(), by: "bo".into() };
    let last = AutoApproval { id: "grt_last".into(), by: "cy".into() };
    store.set_auto_approve(&world.tenant, &"thr".into(), Some(&again), &actor).await.unwrap();
    store.set_auto_approve(&world.tenant, &"thr".into(), Some(&last), &actor).await.unwrap();
    store.set_auto_approve(&world.tenant, &"thr".into(), None, &actor).await.unwrap();
    let kept = Deletion { actor: actor.clone(), decided_approvals: false };
    assert_eq!(store.delete_thread(&world.tenant, &"thr".into(), &kept).await, Ok(Deleted::Nothing));
    let all = Deletion::with_everything(actor);
    assert_eq!(store.delete_thread(&world.tenant, &"thr".into(), &all).await, Ok(Deleted::Thread));
    assert_eq!(store.delete_thread(&world.tenant, &"thr".into(), &all).await, Err(StoreError::NotFound));
    let at = machine::audit::time_text(world.clock.now());
    let line = |action: &str, detail: &str| {
        format!(
            r#"{{"action":"{action}","address":"10.0.0.7","at":"{at}","by":"bo \"b\"","detail":{detail},"tenant":"acme","thread_id":"thr","via":"portal"}}"#
        )
    };
    let expected = [
        line("auto_approve.on", r#"{"grant_id":"grt_all"}"#),
        line("grant.revoked", r#"{"given_by":"bo \"b\"","given_via":"portal","grant_id":"grt_all"}"#),
        line("auto_approve.on", r#"{"grant_id":"grt_again"}"#),
        line("auto_approve.on", r#"{"grant_id":"grt_last"}"#),
        line("grant.revoked", r#"{"given_by":"bo","grant_id":"grt_again"}"#),
        line("auto_approve.off", "{}"),
        line("grant.revoked", r#"{"given_by":"cy","grant_id":"grt_last"}"#),
        line(
            "thread.deleted",
            &format!(r#"{{"approval_count":1,"approvals":["{id}"],"run_count":1,"runs":["run"]}}"#),
        ),
    ];
    assert_eq!(bodies(&world).await[1..], expected);
}

pub(crate) async fn rule_26_each_tenant_has_a_chain_without_gaps<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let other = world.for_tenant("other");
    let tasks: Vec<_> = (0..20_u64)
        .map(|number| {
            let world = if number % 2 == 0 { world.clone() } else { other.clone() };
            tokio::spawn(async move {
                let entry = AuditEntry::new(Timestamp(number), AuditAction::KeyAdded, Actor::system());
                world.store.record_audit(&world.tenant, &entry.with("number", number)).await.unwrap();
                world.store.seal_audit().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sealed = records(&world, &AuditFilter::default()).await;
    let world = fixture.crash(world).await;
    assert_eq!(records(&world, &AuditFilter::default()).await, sealed, "a sealed record never changes");
    let other = world.for_tenant("other");
    for world in [&world, &other] {
        let chains = world.store.audit_chains().await.unwrap();
        let chain = chains.iter().find(|chain| chain.tenant == world.tenant).unwrap();
        let mut check = ChainCheck::new(world.tenant.as_str(), chain.pruned, &[]);
        for record in records(world, &AuditFilter::default()).await {
            check.record(&record).unwrap();
        }
        check.finish(chain.head).unwrap();
        assert_eq!(check.record_count(), 10);
    }
}

pub(crate) async fn rule_26_records_are_selected_by_time_action_and_principal<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for (at, action, by) in [
        (1, AuditAction::KeyAdded, "ana"),
        (2, AuditAction::KeyAdded, "bo"),
        (3, AuditAction::KeyRemoved, "bo"),
        (4, AuditAction::KeyRemoved, "ana"),
    ] {
        let entry = AuditEntry::new(Timestamp(at), action, by.into());
        world.store.record_audit(&world.tenant, &entry).await.unwrap();
    }
    let numbers = async |filter: AuditFilter| -> Vec<u64> {
        records(&world, &filter).await.iter().map(|record| record.seq).collect()
    };
    let all = AuditFilter::default();
    assert_eq!(numbers(all.clone()).await, [1, 2, 3, 4]);
    assert_eq!(numbers(AuditFilter { since: Some(Timestamp(2)), ..all.clone() }).await, [2, 3, 4]);
    assert_eq!(numbers(AuditFilter { until: Some(Timestamp(2)), ..all.clone() }).await, [1]);
    assert_eq!(numbers(AuditFilter { by: Some("bo".into()), ..all.clone() }).await, [2, 3]);
    assert_eq!(numbers(AuditFilter { action: Some(AuditAction::KeyRemoved), ..all.clone() }).await, [3, 4]);
    let page = world.store.audit(&world.tenant, &all, 1, 2).await.unwrap();
    assert_eq!(page.iter().map(|record| record.seq).collect::<Vec<_>>(), [2, 3]);
    let nobody = world.store.audit(&Tenant::from("other"), &all, 0, 10).await.unwrap();
    assert_eq!(nobody, []);
}

pub(crate) async fn rule_26_a_pruned_chain_still_verifies<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    for at in [1, 2, 9, 3] {
        let entry = AuditEntry::new(Timestamp(at), AuditAction::KeyAdded, Actor::system());
        world.store.record_audit(&world.tenant, &entry).await.unwrap();
    }
    assert_eq!(world.store.prune_audit(Timestamp(5)).await.unwrap(), 0, "only sealed records are pruned");
    let before = records(&world, &AuditFilter::default()).await;
    assert_eq!(world.store.prune_audit(Timestamp(5)).await.unwrap(), 2, "up to the first that is not old");
    let left = records(&world, &AuditFilter::default()).await;
    assert_eq!(left[..2], before[2..]);
    let chain = world.store.audit_chains().await.unwrap().remove(0);
    let mut check = ChainCheck::new("acme", chain.pruned, &[]);
    left.iter().for_each(|record| check.record(record).unwrap());
    check.finish(chain.head).unwrap();
    let hash = before[1].hash;
    let last = left.last().unwrap();
    assert_eq!(last.text("action").unwrap(), "audit.pruned");
    assert!(last.body.contains(&format!(r#""detail":{{"through_hash":"{hash}","through_seq":2}}"#)));
}

pub(crate) async fn rule_26_interrupts_are_recorded<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let cause = machine::event::InterruptCause::Person("bo".into());
    world.submit_accepted("run", Item::Interrupt { cause }).await;
    let mut worker = next_workers(&world, 1).await.remove(0);
    worker.drain();
    worker.commit(&world).await.unwrap();
    let one = |action: &str, by: &str| ("run".to_owned(), action.to_owned(), by.to_owned());
    assert_eq!(recorded(&world).await, [one("approval.rejected", "system"), one("run.interrupted", "bo")]);
    drop(started(&world, "thr_2", "other").await);
    assert_eq!(recorded(&world).await.len(), 2, "a run without a decision records nothing");
}

pub(crate) async fn rule_26_a_decision_that_a_halted_run_never_applied_is_recorded<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    parked(&world, "thr", "run", "transfer").await;
    let worker = claim(&world, "run").await.unwrap();
    let decision = worker.decision("call_run", Some("d1"), approve());
    world.submit_accepted("run", Item::Decision(decision)).await;
    let cause = machine::event::InterruptCause::Person("bo".into());
    world.submit_accepted("run", Item::Interrupt { cause }).await;
    world.store.end_undecoded(&worker.lease).await.unwrap();
    let one = |action: &str, by: &str| ("run".to_owned(), action.to_owned(), by.to_owned());
    let expected =
        [one("approval.approved", "ana"), one("approval.rejected", "system"), one("run.interrupted", "bo")];
    assert_eq!(recorded(&world).await, expected);
    assert!(bodies(&world).await[0].contains(r#""applied":false"#));
}

pub(crate) async fn rule_26_records_of_a_configuration_are_written_together_and_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let tenants = [Tenant::from("acme"), Tenant::from("other")];
    let entry = |at, action| AuditEntry::new(Timestamp(at), action, Actor::system());
    let records = |known: [Option<u64>; 2]| -> Vec<ConfigurationRecord> {
        let entries = vec![
            entry(1, AuditAction::ConfigurationLoaded),
            entry(1, AuditAction::KeyAdded).with("key", "k"),
        ];
        let record = |(tenant, known): (&Tenant, Option<u64>)| ConfigurationRecord {
            tenant: tenant.clone(),
            known,
            entries: entries.clone(),
        };
        tenants.iter().zip(known).map(record).collect()
    };
    let store = &world.store;
    store.record_configuration(&records([Some(0), Some(0)])).await.unwrap();
    let late = store.record_configuration(&records([Some(0), Some(0)])).await;
    assert_eq!(late, Err(StoreError::Behind), "an unsealed record is newer than any that is known");
    assert_eq!(bodies(&world).await.len(), 2);
    let late = store.record_configuration(&records([Some(1), Some(0)])).await;
    assert_eq!(late, Err(StoreError::Behind), "one tenant is enough");
    store.record_configuration(&records([Some(1), Some(1)])).await.unwrap();
    store.record_configuration(&records([None, None])).await.unwrap();
    assert_eq!(bodies(&world).await.len(), 6);
    assert_eq!(bodies(&world.for_tenant("other")).await.len(), 6);
    // The newest record of the configuration is kept: what is recorded next is compared with it.
    assert_eq!(store.prune_audit(Timestamp(5)).await.unwrap(), 8, "four of each tenant");
    let text = &bodies(&world).await[0];
    assert!(text.contains("configuration.loaded"), "{text}");
}
