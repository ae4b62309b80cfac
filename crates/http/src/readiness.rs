//! Whether the store answers. Any client may ask, so the result is cached and the store is not asked each time.

use std::time::Duration;

use engine::store::{Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a result is reused.
const CACHE_TIME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Result<(), StoreError>)>>);

impl Readiness {
    /// Concurrent callers wait for the same result.
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
