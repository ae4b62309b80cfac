//! Responses that the HTTP server stores for requests with an idempotency key.

use machine::id::RunId;

use super::{BoxFuture, StoreError, StoredResponse, Tenant};

/// Responses to requests with an idempotency key.
pub trait ResponseStore: Send + Sync + 'static {
    /// Stores an answer for the lifetime of the run, unless one is stored under this scope; returns the stored one.
    /// [`StoreError::Impossible`] if the run already has the maximum number of answers. [`StoreError::NotFound`] if the
    /// tenant has no such run.
    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>>;

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>>;
}
