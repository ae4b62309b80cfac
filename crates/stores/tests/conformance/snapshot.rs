//! Everything that a tenant can see of a store, to detect whether a refused call left a trace.

use engine::store::{ApprovalFilter, Lease, MessageOrder, Page, RunFilter};

use crate::fixture::World;

/// Includes the inbox and the plugin state of each of these leases that is still valid.
pub(crate) async fn snapshot(world: &World, leases: &[&Lease]) -> String {
    let World { store, tenant, .. } = world;
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let runs = store.runs(tenant, &RunFilter::default(), &page).await.unwrap();
    let all = ApprovalFilter { status: None, ..ApprovalFilter::default() };
    let mut threads = store.threads(tenant, &page).await.unwrap();
    // Each store assigns its own thread numbers.
    threads.items.iter_mut().for_each(|thread| thread.row = 0);
    let mut text = format!(
        "{runs:#?}\n{threads:#?}\n{:#?}\n{:?}\n{:?}",
        store.approvals(tenant, &all, &page).await.unwrap(),
        store.next_wake().await.unwrap(),
        store.metrics().commits,
    );
    for run in &runs.items {
        let log = store.events(tenant, &run.id, 0, 10_000).await.unwrap();
        let kept = store.state(tenant, &run.id).await.unwrap();
        let chain = store.chain_head(tenant, &run.id).await.unwrap();
        text.push_str(&format!("\n{log:#?}\n{kept:#?}\n{chain:?}"));
    }
    for thread in &threads.items {
        let messages = store.messages(tenant, &thread.id, MessageOrder::OldestFirst, &page).await.unwrap();
        text.push_str(&format!("\n{messages:#?}"));
    }
    for lease in leases {
        let loaded = store.load(lease).await.unwrap();
        let kept = store.plugin_state(lease).await.unwrap();
        text.push_str(&format!("\n{loaded:#?}\n{kept:#?}"));
    }
    text
}
