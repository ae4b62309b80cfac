//! How many runs one process works on: the places in which they execute, and a few in which they only hear what cannot wait.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use machine::id::RunId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Node;
use crate::live::lock;
use crate::store::{Lease, Tenant};

/// Runs beyond those that execute which may be told of an interrupt or of the time at once. Each is a commit or two.
const SPARE_MAX: usize = 8;
/// Runs in line of which it is known that nothing has begun.
const UNBEGUN_MAX: usize = 4_096;

pub(super) struct Places {
    all: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

impl Places {
    pub(super) fn new(running_runs_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(running_runs_max)), spare: Arc::new(Semaphore::new(SPARE_MAX)) }
    }
}

/// The right to hold one run. Whoever gives it back, used or not, makes room for what found none.
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    node: Weak<Node>,
    /// The run may hear what cannot wait, and nothing of it executes.
    pub(crate) is_spare: bool,
}

impl Place {
    /// It was not used, and whoever looks for one had it: nobody is told that it is free.
    pub(super) fn give_back(mut self) {
        self.node = Weak::new();
    }

    /// Somebody else may have it. Whoever leaves it may still hear what cannot wait.
    pub(crate) fn leave(&mut self) {
        self.is_spare = true;
        if self.permit.take().is_some()
            && let Some(node) = self.node.upgrade()
            && node.backlog.load(Ordering::SeqCst)
        {
            node.dispatch.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permit.take();
        if let Some(node) = self.node.upgrade()
            && node.backlog.load(Ordering::SeqCst)
        {
            node.dispatch.notify_one();
        }
    }
}

impl Node {
    /// A place for one more run to execute in, if one is free. For whoever serves those in line.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        self.free(&self.places.all, false)
    }

    /// The same for whoever comes by: while others stand in line, a free place is for the first of them.
    pub(crate) fn place_past_nobody(self: &Arc<Self>) -> Option<Place> {
        if self.has_line.load(Ordering::SeqCst) { None } else { self.place() }
    }

    /// A place for one more run that is interrupted or due, if one is free.
    pub(super) fn spare_place(self: &Arc<Self>) -> Option<Place> {
        self.free(&self.places.spare, true)
    }

    fn free(self: &Arc<Self>, places: &Arc<Semaphore>, is_spare: bool) -> Option<Place> {
        if self.stopping.is_cancelled() {
            return None;
        }
        let permit = places.clone().try_acquire_owned().ok()?;
        Some(Place { permit: Some(permit), node: Arc::downgrade(self), is_spare })
    }

    /// The next place that is free. None where this engine has none for ever.
    pub(crate) async fn next_place(self: &Arc<Self>) -> Option<Place> {
        let permit = self.places.all.clone().acquire_owned().await.ok()?;
        Some(Place { permit: Some(permit), node: Arc::downgrade(self), is_spare: false })
    }
}

/// Runs that heard something in a spare place and stand in line for one to execute in. Whoever takes one of them up while
/// nobody else has held it since knows that no attempt was lost. Where this forgets one, its attempt counts as lost.
#[derive(Default)]
pub(crate) struct Unbegun(Mutex<BTreeMap<(Tenant, RunId), (u64, u64)>>);

impl Unbegun {
    pub(crate) fn put(&self, lease: &Lease, seq: u64) {
        let mut known = lock(&self.0);
        if known.len() >= UNBEGUN_MAX {
            known.clear();
        }
        known.insert((lease.tenant.clone(), lease.run.clone()), (lease.epoch, seq));
    }

    /// Whether nothing of the run can have begun since it was let go.
    pub(crate) fn take(&self, lease: &Lease, seq: u64) -> bool {
        let known = lock(&self.0).remove(&(lease.tenant.clone(), lease.run.clone()));
        known.is_some_and(|(epoch, stored)| (epoch + 1, stored) == (lease.epoch, seq))
    }
}
