//! How many runs one process works on: the places in which they execute, and a few in which they only hear what cannot wait.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use machine::id::RunId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Node;
use crate::live::lock;
use crate::store::{Lease, PassOver, Tenant};

/// Runs beyond those that execute which may be told of an interrupt or of the time at once. Each is a commit or two.
const SPARE_MAX: usize = 8;
/// Runs in line of which it is known that nothing has begun.
const UNBEGUN_MAX: usize = 4_096;

pub(super) struct Places {
    all: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    shares: Mutex<Shares>,
    /// A place of a tenant at its bound is free again.
    freed: Notify,
}

/// Who has the places. Where several tenants share them, none of them gets all.
struct Shares {
    bounds: Bounds,
    /// Whether the bounds count.
    several_tenants: bool,
    tenants: BTreeMap<Tenant, TenantPlaces>,
    /// Places in the dispatcher's hands: a claim that is under way may give all of them to one tenant.
    claiming: usize,
}

/// How many places one tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    /// Beyond this many no run of the tenant starts.
    starting: usize,
    /// Beyond this many none continues either: the rest is for other tenants only.
    continuing: usize,
}

impl Bounds {
    /// 90 % for one tenant's runs. Half of the rest is also for those of its runs that continue, such as decided ones. At
    /// least one place is for other tenants only, unless there is just one.
    const fn of(places: usize) -> Self {
        let reserved = places.div_ceil(10);
        let starting = if places > reserved { places - reserved } else { places };
        Self { starting, continuing: starting + (places - starting) / 2 }
    }

    const fn for_run(self, need: Need) -> usize {
        match need {
            Need::Start => self.starting,
            Need::Continue => self.continuing,
        }
    }
}

/// What a run needs its place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its first step.
    Start,
    /// It has begun, and was decided, woken or lost its worker.
    Continue,
}

#[derive(Clone, Copy, Default)]
struct TenantPlaces {
    places: usize,
    /// The bound kept runs of the tenant waiting: those that would start, and those that would continue too. They come
    /// first, so nothing passes them until the dispatcher has looked again.
    start_waits: bool,
    continue_waits: bool,
}

impl TenantPlaces {
    const fn waits(&self, need: Need) -> bool {
        match need {
            Need::Start => self.start_waits,
            Need::Continue => self.continue_waits,
        }
    }
}

impl Shares {
    /// Whether the tenant may have one more place, whatever a claim under way brings.
    fn admits(&self, tenant: &Tenant, need: Need) -> bool {
        if !self.several_tenants {
            return true;
        }
        let held = self.tenants.get(tenant).copied().unwrap_or_default();
        !held.waits(need) && held.places + self.claiming < self.bounds.for_run(need)
    }

    fn give(&mut self, tenant: &Tenant) {
        self.tenants.entry(tenant.clone()).or_default().places += 1;
    }

    fn take_back(&mut self, tenant: Option<&Tenant>) {
        let Some(tenant) = tenant else {
            self.claiming = self.claiming.saturating_sub(1);
            return;
        };
        let Some(held) = self.tenants.get_mut(tenant) else { return };
        held.places = held.places.saturating_sub(1);
        if held.places == 0 && !held.start_waits {
            self.tenants.remove(tenant);
        }
    }

    /// The tenant's bound, and no lack of places, keeps a run of it waiting.
    fn note_waiting(&mut self, tenant: &Tenant, need: Need) {
        let held = self.tenants.entry(tenant.clone()).or_default();
        held.start_waits = true;
        held.continue_waits |= need == Need::Continue;
    }

    /// How many runs may be claimed so that no tenant gets beyond its bound, even if all of them belong to one, and whose
    /// runs are passed over. At most one tenant is at its bound while a place is free.
    fn next_claim(&mut self, free: usize) -> (usize, Option<PassOver>) {
        if !self.several_tenants {
            return (free, None);
        }
        let Bounds { starting, continuing } = self.bounds;
        let (mut limit, mut full) = (free.min(starting), None);
        for (tenant, held) in &mut self.tenants {
            held.start_waits = held.places >= starting;
            held.continue_waits = held.places >= continuing;
            if held.start_waits {
                full = Some(PassOver { tenant: tenant.clone(), woken: held.continue_waits });
            }
            let bound = if held.start_waits { continuing } else { starting };
            if !held.continue_waits {
                limit = limit.min(bound.saturating_sub(held.places));
            }
        }
        self.tenants.retain(|_, held| held.places > 0);
        (limit, full)
    }

    /// For a run that continues and waits for its turn already.
    fn has_room(&self, tenant: &Tenant) -> bool {
        let held = self.tenants.get(tenant).map_or(0, |held| held.places);
        !self.several_tenants || held < self.bounds.continuing
    }

    fn is_full(&self, full: &PassOver) -> bool {
        let held = self.tenants.get(&full.tenant).map_or(0, |held| held.places);
        let need = if full.woken { Need::Continue } else { Need::Start };
        self.several_tenants && held >= self.bounds.for_run(need)
    }
}

impl Places {
    pub(super) fn new(running_runs_max: usize, several_tenants: bool) -> Self {
        let shares = Shares {
            bounds: Bounds::of(running_runs_max),
            several_tenants,
            tenants: BTreeMap::new(),
            claiming: 0,
        };
        Self {
            all: Arc::new(Semaphore::new(running_runs_max)),
            spare: Arc::new(Semaphore::new(SPARE_MAX)),
            shares: Mutex::new(shares),
            freed: Notify::new(),
        }
    }
}

/// The right to hold one run. Whoever gives it back, used or not, makes room for what found none.
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    node: Weak<Node>,
    /// Whose run has it; none while the dispatcher looks for one.
    tenant: Option<Tenant>,
    /// The run may hear what cannot wait, and nothing of it executes.
    pub(crate) is_spare: bool,
}

impl Place {
    /// It was not used, and whoever looks for one had it: nobody is told that it is free.
    pub(super) fn give_back(mut self) {
        self.free();
        self.node = Weak::new();
    }

    /// A run of this tenant was claimed for it.
    pub(super) fn belongs_to(&mut self, tenant: &Tenant) {
        if self.is_spare || self.tenant.is_some() {
            return;
        }
        if let Some(node) = self.node.upgrade() {
            let mut shares = lock(&node.places.shares);
            shares.take_back(None);
            shares.give(tenant);
            self.tenant = Some(tenant.clone());
        }
    }

    /// Somebody else may have it. Whoever leaves it may still hear what cannot wait.
    pub(crate) fn leave(&mut self) {
        let had_one = self.free();
        self.is_spare = true;
        if had_one {
            self.ring();
        }
    }

    /// Whether there was anything to free.
    fn free(&mut self) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        let node = self.node.upgrade().filter(|_| !self.is_spare);
        if let Some(node) = &node {
            lock(&node.places.shares).take_back(self.tenant.take().as_ref());
        }
        drop(permit);
        if let Some(node) = node {
            node.places.freed.notify_waiters();
        }
        true
    }

    fn ring(&self) {
        if let Some(node) = self.node.upgrade()
            && node.backlog.load(Ordering::SeqCst)
        {
            node.dispatch.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free();
        self.ring();
    }
}

impl Node {
    /// Whether the tenants' bounds count from here on.
    pub(crate) fn share_places(&self, several_tenants: bool) {
        lock(&self.places.shares).several_tenants = several_tenants;
        self.later();
    }

    /// Places for the runs that a claim may give out, and whose runs it must pass over. The dispatcher's alone.
    pub(super) fn places_to_claim(self: &Arc<Self>, most: usize) -> (Vec<Place>, Option<PassOver>) {
        let mut shares = lock(&self.places.shares);
        let (limit, full) = shares.next_claim(most);
        let mut places = Vec::new();
        while places.len() < limit
            && let Some(place) = self.permit(&self.places.all, None, false)
        {
            shares.claiming += 1;
            places.push(place);
        }
        (places, full)
    }

    /// A place for a run of this tenant that comes by: while others stand in line, a free place is for the first of them.
    pub(crate) fn place_past_nobody(self: &Arc<Self>, tenant: &Tenant, need: Need) -> Option<Place> {
        if self.has_line.load(Ordering::SeqCst) {
            return None;
        }
        let mut shares = lock(&self.places.shares);
        if !shares.admits(tenant, need) {
            return None;
        }
        let place = self.permit(&self.places.all, Some(tenant), false)?;
        shares.give(tenant);
        Some(place)
    }

    /// A run of this tenant found no place: the dispatcher looks for one. Where the tenant's bound is the reason, no other
    /// tenant stands behind it.
    pub(super) fn line_up(&self, tenant: &Tenant, need: Need) {
        let mut shares = lock(&self.places.shares);
        if shares.admits(tenant, need) {
            self.has_line.store(true, Ordering::SeqCst);
        } else {
            shares.note_waiting(tenant, need);
        }
        drop(shares);
        self.later();
    }

    /// Whether this tenant's runs are still to be passed over.
    pub(super) fn is_full(&self, full: &PassOver) -> bool {
        lock(&self.places.shares).is_full(full)
    }

    /// A place for one more run that is interrupted or due, if one is free.
    pub(super) fn spare_place(self: &Arc<Self>) -> Option<Place> {
        self.permit(&self.places.spare, None, true)
    }

    fn permit(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        tenant: Option<&Tenant>,
        is_spare: bool,
    ) -> Option<Place> {
        if self.stopping.is_cancelled() {
            return None;
        }
        let permit = places.clone().try_acquire_owned().ok()?;
        Some(Place { permit: Some(permit), node: Arc::downgrade(self), tenant: tenant.cloned(), is_spare })
    }

    /// The next place that is free for a run of this tenant that continues. None where this engine has none for ever.
    pub(crate) async fn next_place(self: &Arc<Self>, tenant: &Tenant) -> Option<Place> {
        loop {
            let freed = self.places.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if !lock(&self.places.shares).has_room(tenant) {
                freed.await;
                continue;
            }
            let permit = self.places.all.clone().acquire_owned().await.ok()?;
            let mut place =
                Place { permit: Some(permit), node: Arc::downgrade(self), tenant: None, is_spare: false };
            let mut shares = lock(&self.places.shares);
            let has_room = shares.has_room(tenant);
            // Freed as what it was taken as, where another run of the tenant was faster.
            shares.claiming += 1;
            drop(shares);
            if has_room {
                place.belongs_to(tenant);
                return Some(place);
            }
        }
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
