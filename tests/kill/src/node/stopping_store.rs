//! A store that stops on either side of whatever changes it, rings when it has changed, and else does as it is told.

use std::sync::Arc;

use engine::store::{
    Append, Appended, Claim, Claimed, Create, Created, Lease, Refused, Ring, Store, Task, Tenant, Wrapper,
};
use machine::event::Fact;
use machine::id::{Digest, RunId};
use machine::inbox::{Item, Verdict};
use tokio::sync::Notify;

use super::say;
use super::stops::Stops;
use crate::wire::{Line, Passage, Side};

pub(super) struct StoppingStore<S> {
    pub(super) store: S,
    pub(super) stops: Stops,
    /// Something may have changed.
    pub(super) changed: Arc<Notify>,
}

impl<S: Store> StoppingStore<S> {
    /// The work is asked for between the two sides, not before.
    fn through<'a, T: Send + 'a>(
        &'a self,
        passage: Passage,
        work: impl FnOnce(&'a S) -> Task<'a, T> + Send + 'a,
    ) -> Task<'a, T> {
        Box::pin(async move {
            self.stops.cross(Side::Before, passage).await;
            let done = work(&self.store).await;
            self.stops.cross(Side::After, passage).await;
            self.changed.notify_one();
            done
        })
    }
}

impl<S: Store> Wrapper for StoppingStore<S> {
    fn behind(&self) -> &dyn Store {
        &self.store
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        let (digest, text) = (*digest, text.to_owned());
        self.through(Passage::PutRevision, move |store| store.put_revision(&digest, &text))
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        self.through(Passage::Create, move |store| {
            Box::pin(async move {
                let created = store.create(create).await;
                if store.is_shared() {
                    created.iter().filter_map(|created| created.lease.as_ref()).for_each(say_claimed);
                }
                created
            })
        })
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        self.through(Passage::Claim, move |store| {
            Box::pin(async move {
                let claimed = store.claim(claim).await;
                if store.is_shared() {
                    claimed.iter().flatten().for_each(|claimed| say_claimed(&claimed.lease));
                }
                claimed
            })
        })
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        let lease = lease.clone();
        let starts = append.events.iter().any(|event| matches!(event.fact, Fact::ExecutionStarted { .. }));
        let passage = if starts { Passage::Start } else { Passage::Append };
        self.through(passage, move |store| {
            Box::pin(async move {
                let count = append.events.len() as u64;
                let seq = append.expected_seq + count;
                let appended = store.append(&lease, append).await;
                if store.is_shared() && count > 0 {
                    say_stored(&lease, seq, &appended);
                }
                appended
            })
        })
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        let lease = lease.clone();
        self.through(Passage::Release, move |store| store.release(&lease))
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.through(Passage::Submit, move |store| store.submit(&tenant, &run, item))
    }

    fn rung(&self) -> Task<'_, Ring> {
        Box::pin(async move {
            let ring = self.store.rung().await;
            self.changed.notify_one();
            ring
        })
    }
}

fn say_claimed(lease: &Lease) {
    say(&Line::Claimed { run: lease.run.clone(), epoch: lease.epoch });
}

fn say_stored(lease: &Lease, seq: u64, appended: &Result<Appended, Refused>) {
    let (run, epoch) = (lease.run.clone(), lease.epoch);
    say(&match appended {
        Ok(_) => Line::Stored { run, epoch, seq },
        Err(_) => Line::NotStored { run, epoch },
    });
}
