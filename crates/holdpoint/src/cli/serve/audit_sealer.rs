//! Seals audit records in the background, so that each of them is in its chain within a second.

use std::time::Duration;

use engine::Engine;
use engine::store::StoreError;

const SEAL_EVERY: Duration = Duration::from_millis(500);

/// Runs until the task is aborted. Records that it has not sealed are sealed after the next start.
pub(super) async fn seal_records(engine: Engine) {
    let mut is_failing = false;
    loop {
        tokio::time::sleep(SEAL_EVERY).await;
        match seal_all(&engine).await {
            Ok(()) => is_failing = false,
            Err(refused) if !is_failing => {
                is_failing = true;
                tracing::warn!(%refused, "audit records cannot be sealed; they are kept, and sealing is tried again");
            }
            Err(_) => {}
        }
    }
}

async fn seal_all(engine: &Engine) -> Result<(), StoreError> {
    while engine.store().seal_audit().await? > 0 {}
    Ok(())
}
