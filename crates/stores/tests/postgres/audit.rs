//! The audit record of a database: tampering is found, and it affects only its own tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::store::{AuditFilter, Tenant, seal_all};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry};
use stores::audit_reader::{VerifiedChain, verify_audit};
use stores::postgres::upkeep::Upkeep;

use crate::fixture::World;
use crate::nodes::Cluster;

async fn record(world: &World, tenant: &str, at: u64) {
    let entry = AuditEntry::new(Timestamp(at), AuditAction::KeyAdded, Actor::system());
    world.store.record_audit(&Tenant::from(tenant), &entry).await.unwrap();
}

/// Four sealed records of two tenants each.
async fn populated(cluster: &Cluster<'_>) -> World {
    let world = cluster.node().await.world;
    for tenant in ["acme", "other"] {
        for at in 1..=4 {
            record(&world, tenant, at).await;
        }
    }
    assert_eq!(seal_all(&*world.store).await.unwrap(), []);
    world
}

async fn verified(cluster: &Cluster<'_>) -> Vec<VerifiedChain> {
    let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.unwrap();
    verify_audit(&upkeep, &[]).await.unwrap()
}

fn why(verified: &VerifiedChain) -> &str {
    verified.broken.as_ref().map_or("", |broken| broken.why.as_str())
}

#[tokio::test]
async fn a_forged_row_after_the_head_is_reported_and_stops_only_its_own_tenant() {
    let cluster = Cluster::new();
    let world = populated(&cluster).await;
    let forged = "INSERT INTO audit (tenant, at, action, actor, body, seq, hash)
        SELECT tenant, at, action, actor, body, 5, hash FROM audit WHERE tenant = 'acme' AND seq = 4";
    assert_eq!(cluster.client().await.execute(forged, &[]).await.unwrap(), 1);
    record(&world, "acme", 5).await;
    record(&world, "other", 5).await;
    let sealed = world.store.seal_audit().await.unwrap();
    assert_eq!((sealed.records, &sealed.stopped[..]), (1, &[Tenant::from("acme")][..]));
    assert_eq!(seal_all(&*world.store).await.unwrap(), [Tenant::from("acme")]);
    let listed = world.store.audit(&"acme".into(), &AuditFilter::default(), 0, 10).await.unwrap();
    assert_eq!(listed.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let found = verified(&cluster).await;
    assert_eq!(found[0].broken.as_ref().map(|broken| broken.seq), Some(5), "{found:?}");
    assert_eq!(found[0].unsealed, 1);
    assert_eq!((found[1].records, &found[1].broken), (5, &None));
}

#[tokio::test]
async fn the_oldest_records_cannot_be_removed_by_moving_the_beginning_of_the_chain() {
    let cluster = Cluster::new();
    let world = populated(&cluster).await;
    let client = cluster.client().await;
    let moved = "UPDATE audit_chains SET pruned_seq = 2,
            pruned_hash = (SELECT hash FROM audit WHERE tenant = 'acme' AND seq = 2) WHERE tenant = 'acme'";
    assert_eq!(client.execute(moved, &[]).await.unwrap(), 1);
    let found = verified(&cluster).await;
    assert!(why(&found[0]).contains("no `audit.pruned` record"), "{found:?}");
    let rows = "DELETE FROM audit WHERE tenant = 'acme' AND seq <= 2";
    assert_eq!(client.execute(rows, &[]).await.unwrap(), 2);
    let found = verified(&cluster).await;
    assert!(why(&found[0]).contains("records 1 to 2 are missing"), "{found:?}");
    assert_eq!(world.store.prune_audit(Timestamp(4)).await.unwrap(), 3, "only of the other tenant");
    let found = verified(&cluster).await;
    assert!(
        why(&found[0]).contains("records 1 to 2 are missing"),
        "retention does not cover it up: {found:?}"
    );
    assert_eq!(found[1].broken, None, "retention records what it deletes");
}

/// A row that is sealed while the record is verified is not a fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_record_that_grows_and_is_pruned_meanwhile_is_intact() {
    let cluster = Cluster::new();
    let world = populated(&cluster).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (world, stopped) = (world.clone(), stopped.clone());
        async move {
            let mut at = 10;
            while !stopped.load(Ordering::Relaxed) {
                at += 1;
                record(&world, "acme", at).await;
                record(&world, &format!("new_{at}"), at).await;
                seal_all(&*world.store).await.unwrap();
                world.store.prune_audit(Timestamp(at - 5)).await.unwrap();
            }
        }
    });
    for _ in 0..20 {
        for one in verified(&cluster).await {
            assert_eq!(one.broken, None);
        }
    }
    stopped.store(true, Ordering::Relaxed);
    writing.await.unwrap();
}
