//! What the nodes share beside the runs: callback keys, notifications and live updates.

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{BoxFuture, ClusterStore, LiveUpdate, Notification, StoreError};
use machine::id::RunId;

use super::store::task;
use super::{PostgresStore, delta_codec};

impl ClusterStore for PostgresStore {
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>> {
        task(async move { self.shared.callback_keys(drawn).await })
    }

    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>> {
        task(async move { self.shared.rotate_callback_key(drawn).await })
    }

    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>> {
        task(async move { self.shared.remove_callback_keys(which).await })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(self.shared.incoming.receive())
    }

    fn request_live(&self, run: &RunId) {
        self.shared.outgoing.queue_watch(run);
    }

    fn publish_live(&self, run: &RunId, after: u64, said: Vec<LiveUpdate>) {
        self.shared.outgoing.queue_deltas(delta_codec::encode(run, after, said));
    }

    fn release_all(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        task(self.shared.hand_over())
    }
}
