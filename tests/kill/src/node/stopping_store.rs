//! A store that can halt before and after every change, notifies after a change, and otherwise passes calls through.

use std::sync::Arc;

use engine::store::{
    Append, Appended, AutoApproval, BoxFuture, Claim, Claimed, Create, Created, Deleted, Deletion, Lease,
    Notification, Store, StoreError, Tenant, Wrapper,
};
use machine::audit::Actor;
use machine::event::Fact;
use machine::id::{Digest, RunId, ThreadId};
use machine::inbox::{Item, Verdict};
use tokio::sync::Notify;

use super::print_line;
use super::stops::Stops;
use crate::wire::{Line, Operation, Side};

pub(super) struct StoppingStore<S> {
    pub(super) store: S,
    pub(super) stops: Stops,
    /// Notified when something may have changed.
    pub(super) changed: Arc<Notify>,
}

impl<S: Store> StoppingStore<S> {
    /// The inner store is called between the two boundaries, not before.
    fn through<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        work: impl FnOnce(&'a S) -> BoxFuture<'a, T> + Send + 'a,
    ) -> BoxFuture<'a, T> {
        Box::pin(async move {
            self.stops.cross(Side::Before, operation).await;
            let done = work(&self.store).await;
            self.stops.cross(Side::After, operation).await;
            self.changed.notify_one();
            done
        })
    }
}

impl<S: Store> Wrapper for StoppingStore<S> {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (digest, text) = (*digest, text.to_owned());
        self.through(Operation::PutRevision, move |store| store.put_revision(&digest, &text))
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        self.through(Operation::Create, move |store| {
            Box::pin(async move {
                let created = store.create(create).await;
                if store.is_shared() {
                    created.iter().filter_map(|created| created.lease.as_ref()).for_each(print_claimed);
                }
                created
            })
        })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        self.through(Operation::Claim, move |store| {
            Box::pin(async move {
                let claimed = store.claim(claim).await;
                if store.is_shared() {
                    claimed.iter().flatten().for_each(|claimed| print_claimed(&claimed.lease));
                }
                claimed
            })
        })
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        let starts = append.events.iter().any(|event| matches!(event.fact, Fact::ExecutionStarted { .. }));
        let operation = if starts { Operation::Start } else { Operation::Append };
        self.through(operation, move |store| {
            Box::pin(async move {
                let count = append.events.len() as u64;
                let seq = append.expected_seq + count;
                let appended = store.append(&lease, append).await;
                if store.is_shared() && count > 0 {
                    print_stored(&lease, seq, &appended);
                }
                appended
            })
        })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        let lease = lease.clone();
        self.through(Operation::Release, move |store| store.release(&lease))
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.through(Operation::Submit, move |store| store.submit(&tenant, &run, item))
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, thread, given, actor) = (tenant.clone(), thread.clone(), given.cloned(), actor.clone());
        self.through(Operation::ChangeThread, move |store| {
            store.set_auto_approve(&tenant, &thread, given.as_ref(), &actor)
        })
    }

    fn delete_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        deletion: &Deletion,
    ) -> BoxFuture<'_, Result<Deleted, StoreError>> {
        let (tenant, thread, deletion) = (tenant.clone(), thread.clone(), deletion.clone());
        self.through(Operation::ChangeThread, move |store| store.delete_thread(&tenant, &thread, &deletion))
    }

    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(async move {
            let ring = self.store.next_notification().await;
            self.changed.notify_one();
            ring
        })
    }
}

fn print_claimed(lease: &Lease) {
    print_line(&Line::Claimed { run: lease.run.clone(), epoch: lease.epoch });
}

fn print_stored(lease: &Lease, seq: u64, appended: &Result<Appended, StoreError>) {
    let (run, epoch) = (lease.run.clone(), lease.epoch);
    print_line(&match appended {
        Ok(_) => Line::Stored { run, epoch, seq },
        Err(_) => Line::NotStored { run, epoch },
    });
}
