//! Whether the store answers. Anybody may ask, so the store is asked now and then and not each time.

use std::time::Duration;

use engine::store::{Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// An answer counts for so long.
const CACHE_TIME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Result<(), StoreError>)>>);

impl Readiness {
    /// Whoever asks meanwhile waits for the same answer.
    pub(crate) async fn check(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut known = self.0.lock().await;
        if let Some((at, answer)) = &*known
            && at.elapsed() < CACHE_TIME
        {
            return answer.clone();
        }
        let answer = store.next_wake().await.map(|_| ());
        *known = Some((Instant::now(), answer.clone()));
        answer
    }
}
