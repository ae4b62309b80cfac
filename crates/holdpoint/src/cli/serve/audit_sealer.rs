//! Seals audit records in the background, so that each of them is in its chain within a second, and then delivers them.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::store::{StoreError, Tenant, seal_all};
use holdpoint_http::Server;

use super::audit_sink::SinkDelivery;

const SEAL_EVERY: Duration = Duration::from_millis(500);
const REFUSALS_EVERY: Duration = Duration::from_secs(60);

/// Runs until the task is aborted. Records that it has not sealed are sealed after the next start.
pub(super) async fn seal_records(engine: Engine, mut delivery: Option<SinkDelivery>) {
    let mut last: Result<Vec<Tenant>, StoreError> = Ok(Vec::new());
    loop {
        let sealed = seal_all(&**engine.store()).await;
        // Said once, and again when it changes.
        match &sealed {
            Ok(stopped) => stopped.iter().filter(|tenant| was_sealed(&last, tenant)).for_each(log_stopped),
            Err(refused) if last.is_ok() => tracing::warn!(
                %refused,
                "audit records cannot be sealed; they are kept, and sealing is tried again"
            ),
            Err(_) => {}
        }
        // While nothing can be sealed, nothing is delivered, and the sink counts as late.
        if let (Ok(stopped), Some(delivery)) = (&sealed, &mut delivery) {
            delivery.deliver(stopped).await;
        }
        last = sealed;
        tokio::time::sleep(SEAL_EVERY).await;
    }
}

/// Records refused requests until the task is aborted.
pub(super) async fn record_refusals(server: Arc<Server>) {
    loop {
        tokio::time::sleep(REFUSALS_EVERY).await;
        if let Err(refused) = server.record_refusals().await {
            tracing::warn!(
                %refused,
                "refused requests of the last minute are missing in the audit record; nothing else is affected"
            );
        }
    }
}

fn was_sealed(last: &Result<Vec<Tenant>, StoreError>, tenant: &Tenant) -> bool {
    last.as_ref().map_or(true, |stopped| !stopped.contains(tenant))
}

fn log_stopped(tenant: &Tenant) {
    tracing::error!(
        %tenant,
        "rows follow the stored head of this tenant's audit record: the store was changed by hand; its new records are \
         kept, but not sealed, so the record does not protect them. Run `holdpoint audit verify`, and see docs/audit.md"
    );
}
