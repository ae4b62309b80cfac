//! Deletes old audit records in the background.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::store::StoreError;
use holdpoint_http::Server;
use machine::Timestamp;

use super::audit_sink::SinkStatus;

const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Runs until the task is aborted. The first sweep begins at once.
pub(super) async fn sweep_records(
    engine: Engine,
    server: Arc<Server>,
    retention: Duration,
    sink: Option<SinkStatus>,
) {
    loop {
        if sink.as_ref().is_some_and(SinkStatus::has_fault) {
            // Tried again soon: a sink counts as down until its first delivery.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        match sweep(&engine, &server, retention).await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(deleted, "deleted audit records that are older than audit.retention")
            }
            Err(refused) => tracing::warn!(
                %refused,
                "old audit records cannot be deleted; they are kept, and it is tried again in ten minutes"
            ),
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

async fn sweep(engine: &Engine, server: &Server, retention: Duration) -> Result<u64, StoreError> {
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let older_than = Timestamp(engine.store().now().0.saturating_sub(retention_ms));
    let mut deleted = 0;
    loop {
        match server.prune_audit(older_than).await? {
            0 => return Ok(deleted),
            batch => deleted += batch,
        }
        tokio::task::yield_now().await;
    }
}
