//! What the processes of one deployment share beside the runs: notifications, live updates and callback keys.

use machine::id::RunId;

use super::{BoxFuture, LiveUpdate, Notification, StoreError};
use crate::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};

/// Notifications, live updates and callback keys, for processes that share a store.
pub trait ClusterStore: Send + Sync + 'static {
    /// Stores this callback key unless there is one; returns the stored and the previous key. With None it only reads.
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>>;

    /// Makes this key the current one, and the current one the previous one.
    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>>;

    /// Removes these callback keys; false if none was stored. A process that has read them keeps using them.
    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Whether other processes may work on the same runs.
    fn is_shared(&self) -> bool {
        false
    }

    /// The next notification from another process. Cancel-safe. Never resolves in the store of a single process.
    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(std::future::pending())
    }

    /// Requests live updates of a run that another process may hold, for a watcher here. Until the run's next commit
    /// its holder is notified ([`Notification::LiveRequested`]). Does not block.
    fn request_live(&self, _run: &RunId) {}

    /// Sends live updates of a run to watchers in other processes ([`Notification::Live`]): deltas by the process that
    /// holds the run, notes of tools also by the process to which a tool reports.
    /// Does not block, and may fail silently: the event that follows carries the complete content.
    fn publish_live(&self, _run: &RunId, _after: u64, _updates: Vec<LiveUpdate>) {}

    /// This process has stopped working on all its runs: releases them, so that other processes may continue them at
    /// once. A no-op if leases end with the process.
    fn release_all(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
