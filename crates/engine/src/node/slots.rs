//! How many runs one process works on: slots in which runs execute, and a few spare slots for urgent input only.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use machine::id::RunId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Node;
use crate::live::lock;
use crate::store::{Lease, SkipTenant, Tenant};

/// Runs beyond the executing ones that may process an interrupt or a deadline at once. Each takes a commit or two.
const SPARE_MAX: usize = 8;
/// Maximum number of queued runs that are remembered as not having started anything.
const UNSTARTED_MAX: usize = 4_096;

pub(super) struct Slots {
    all: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    shares: Mutex<TenantShares>,
    /// Notified when a slot is released, for tenants that are at their bound.
    freed: Notify,
}

/// Which tenant has how many slots. If several tenants share them, none of them gets all.
struct TenantShares {
    bounds: SlotBounds,
    /// Whether the bounds apply.
    several_tenants: bool,
    tenants: BTreeMap<Tenant, TenantSlots>,
    /// Slots that the dispatcher has taken for a claim in flight, which may give all of them to one tenant.
    claiming: usize,
}

/// How many slots one tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotBounds {
    /// With this many slots, the tenant starts no further run.
    starting: usize,
    /// With this many slots, none of its runs continues either: the rest is only for other tenants.
    continuing: usize,
}

impl SlotBounds {
    /// 90 % for one tenant's runs. Half of the rest is also for those of its runs that continue, such as decided ones.
    /// At least one slot is only for other tenants, unless there is just one slot.
    const fn for_slots(slots: usize) -> Self {
        let reserved = slots.div_ceil(10);
        let starting = if slots > reserved { slots - reserved } else { slots };
        Self { starting, continuing: starting + (slots - starting) / 2 }
    }

    const fn for_run(self, need: Need) -> usize {
        match need {
            Need::Start => self.starting,
            Need::Continue => self.continuing,
        }
    }
}

/// What a run needs its slot for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its first step.
    Start,
    /// It has started, and was decided, woken or lost its worker.
    Continue,
}

#[derive(Clone, Copy, Default)]
struct TenantSlots {
    slots: usize,
    waiting: WaitingRuns,
}

/// Which runs of a tenant wait because of its bound. They come first, so no other run of the tenant passes them until
/// the dispatcher has looked again.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum WaitingRuns {
    #[default]
    None,
    /// Those that would start.
    Starting,
    /// Also those that would continue.
    All,
}

impl WaitingRuns {
    /// If runs with this need wait.
    const fn behind(need: Need) -> Self {
        match need {
            Need::Start => Self::Starting,
            Need::Continue => Self::All,
        }
    }

    fn includes(self, need: Need) -> bool {
        self >= Self::behind(need)
    }
}

impl TenantShares {
    /// Whether the tenant may have one more slot, whatever a claim in flight returns.
    fn admits(&self, tenant: &Tenant, need: Need) -> bool {
        if !self.several_tenants {
            return true;
        }
        let held = self.tenants.get(tenant).copied().unwrap_or_default();
        !held.waiting.includes(need) && held.slots + self.claiming < self.bounds.for_run(need)
    }

    fn give(&mut self, tenant: &Tenant) {
        self.tenants.entry(tenant.clone()).or_default().slots += 1;
    }

    fn take_back(&mut self, holder: &SlotHolder) {
        let tenant = match holder {
            SlotHolder::Claim => {
                self.claiming = self.claiming.saturating_sub(1);
                return;
            }
            SlotHolder::Tenant(tenant) => tenant,
            SlotHolder::Spare => return,
        };
        let Some(held) = self.tenants.get_mut(tenant) else { return };
        held.slots = held.slots.saturating_sub(1);
        if held.slots == 0 && held.waiting == WaitingRuns::None {
            self.tenants.remove(tenant);
        }
    }

    /// A run waits because of its tenant's bound, not for lack of slots.
    fn note_waiting(&mut self, tenant: &Tenant, need: Need) {
        let held = self.tenants.entry(tenant.clone()).or_default();
        held.waiting = held.waiting.max(WaitingRuns::behind(need));
    }

    /// How many runs may be claimed so that no tenant exceeds its bound, even if all of them belong to one tenant, and
    /// whose runs to skip. At most one tenant is at its bound while a slot is free.
    fn next_claim(&mut self, free: usize) -> (usize, Option<SkipTenant>) {
        if !self.several_tenants {
            return (free, None);
        }
        let SlotBounds { starting, continuing } = self.bounds;
        let (mut limit, mut full) = (free.min(starting), None);
        for (tenant, held) in &mut self.tenants {
            let bound = match held.slots {
                slots if slots >= continuing => {
                    held.waiting = WaitingRuns::All;
                    full = Some(SkipTenant { tenant: tenant.clone(), woken: true });
                    continue;
                }
                slots if slots >= starting => {
                    held.waiting = WaitingRuns::Starting;
                    full = Some(SkipTenant { tenant: tenant.clone(), woken: false });
                    continuing
                }
                _ => {
                    held.waiting = WaitingRuns::None;
                    starting
                }
            };
            limit = limit.min(bound.saturating_sub(held.slots));
        }
        self.tenants.retain(|_, held| held.slots > 0);
        (limit, full)
    }

    /// For a run that continues and is already waiting for its turn.
    fn has_room(&self, tenant: &Tenant) -> bool {
        let held = self.tenants.get(tenant).map_or(0, |held| held.slots);
        !self.several_tenants || held < self.bounds.continuing
    }

    fn is_full(&self, full: &SkipTenant) -> bool {
        let held = self.tenants.get(&full.tenant).map_or(0, |held| held.slots);
        let need = if full.woken { Need::Continue } else { Need::Start };
        self.several_tenants && held >= self.bounds.for_run(need)
    }
}

impl Slots {
    pub(super) fn new(running_runs_max: usize, several_tenants: bool) -> Self {
        let shares = TenantShares {
            bounds: SlotBounds::for_slots(running_runs_max),
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

/// The right to hold one run. Dropping it, used or not, makes room for a run that found no slot.
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    node: Weak<Node>,
    holder: SlotHolder,
}

enum SlotHolder {
    /// The dispatcher is claiming a run for it.
    Claim,
    /// A run of this tenant executes in it.
    Tenant(Tenant),
    /// The run may only process urgent input; nothing of it executes.
    Spare,
}

impl Slot {
    /// The dispatcher did not use it. It knows that the slot is free, so it is not woken.
    pub(super) fn return_unused(mut self) {
        self.release();
        self.node = Weak::new();
    }

    /// A run of this tenant was claimed for it.
    pub(super) fn assign_to(&mut self, tenant: &Tenant) {
        match self.holder {
            SlotHolder::Claim => {}
            SlotHolder::Tenant(_) | SlotHolder::Spare => return,
        }
        if let Some(node) = self.node.upgrade() {
            let mut shares = lock(&node.slots.shares);
            shares.take_back(&self.holder);
            shares.give(tenant);
            self.holder = SlotHolder::Tenant(tenant.clone());
        }
    }

    /// Whether the run may only process urgent input.
    pub(crate) const fn is_spare(&self) -> bool {
        match self.holder {
            SlotHolder::Spare => true,
            SlotHolder::Claim | SlotHolder::Tenant(_) => false,
        }
    }

    /// Frees the slot for another run. The run that gives it up may still process urgent input.
    pub(crate) fn release_for_spare(&mut self) {
        let had_one = self.release();
        self.holder = SlotHolder::Spare;
        if had_one {
            self.wake_dispatcher();
        }
    }

    /// True if there was a permit to release.
    fn release(&mut self) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        let node = self.node.upgrade().filter(|_| !self.is_spare());
        if let Some(node) = &node {
            lock(&node.slots.shares).take_back(&self.holder);
        }
        drop(permit);
        if let Some(node) = node {
            node.slots.freed.notify_waiters();
        }
        true
    }

    fn wake_dispatcher(&self) {
        if let Some(node) = self.node.upgrade()
            && node.backlog.load(Ordering::SeqCst)
        {
            node.dispatch.notify_one();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
        self.wake_dispatcher();
    }
}

impl Node {
    /// Sets whether the tenants' bounds apply.
    pub(crate) fn share_slots(&self, several_tenants: bool) {
        lock(&self.slots.shares).several_tenants = several_tenants;
        self.schedule_dispatch();
    }

    /// Slots for the runs that a claim may return, and whose runs it must skip. Only for the dispatcher.
    pub(super) fn slots_to_claim(self: &Arc<Self>, most: usize) -> (Vec<Slot>, Option<SkipTenant>) {
        let mut shares = lock(&self.slots.shares);
        let (limit, full) = shares.next_claim(most);
        let mut slots = Vec::new();
        while slots.len() < limit
            && let Some(slot) = self.permit(&self.slots.all, SlotHolder::Claim)
        {
            shares.claiming += 1;
            slots.push(slot);
        }
        (slots, full)
    }

    /// A slot for a run of this tenant, unless runs are queued: then a free slot is for the first in the queue.
    pub(crate) fn try_take_slot(self: &Arc<Self>, tenant: &Tenant, need: Need) -> Option<Slot> {
        if self.has_queue.load(Ordering::SeqCst) {
            return None;
        }
        let mut shares = lock(&self.slots.shares);
        if !shares.admits(tenant, need) {
            return None;
        }
        let slot = self.permit(&self.slots.all, SlotHolder::Tenant(tenant.clone()))?;
        shares.give(tenant);
        Some(slot)
    }

    /// A run of this tenant found no slot, so the dispatcher looks for one. If the tenant's bound is the reason, other
    /// tenants do not have to queue behind it.
    pub(super) fn queue_for_slot(&self, tenant: &Tenant, need: Need) {
        let mut shares = lock(&self.slots.shares);
        if shares.admits(tenant, need) {
            self.has_queue.store(true, Ordering::SeqCst);
        } else {
            shares.note_waiting(tenant, need);
        }
        drop(shares);
        self.schedule_dispatch();
    }

    /// Whether this tenant's runs must still be skipped.
    pub(super) fn is_full(&self, full: &SkipTenant) -> bool {
        lock(&self.slots.shares).is_full(full)
    }

    /// A spare slot for one more run that is interrupted or due, if one is free.
    pub(super) fn take_spare_slot(self: &Arc<Self>) -> Option<Slot> {
        self.permit(&self.slots.spare, SlotHolder::Spare)
    }

    fn permit(self: &Arc<Self>, slots: &Arc<Semaphore>, holder: SlotHolder) -> Option<Slot> {
        if self.stopping.is_cancelled() {
            return None;
        }
        let permit = slots.clone().try_acquire_owned().ok()?;
        Some(Slot { permit: Some(permit), node: Arc::downgrade(self), holder })
    }

    /// Waits for a slot for a run of this tenant that continues. None if this engine will never have one.
    pub(crate) async fn wait_for_slot(self: &Arc<Self>, tenant: &Tenant) -> Option<Slot> {
        loop {
            let freed = self.slots.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if !lock(&self.slots.shares).has_room(tenant) {
                freed.await;
                continue;
            }
            let permit = self.slots.all.clone().acquire_owned().await.ok()?;
            let holder = SlotHolder::Claim;
            let mut slot = Slot { permit: Some(permit), node: Arc::downgrade(self), holder };
            let mut shares = lock(&self.slots.shares);
            let has_room = shares.has_room(tenant);
            // If another run of the tenant was faster, dropping the slot subtracts this again.
            shares.claiming += 1;
            drop(shares);
            if has_room {
                slot.assign_to(tenant);
                return Some(slot);
            }
        }
    }
}

/// Runs that processed something in a spare slot and are queued for one to execute in. If no other worker has held such
/// a run since, the worker that claims it next knows that no attempt was lost. If an entry is forgotten, the run's
/// attempt counts as lost.
#[derive(Default)]
pub(crate) struct UnstartedRuns(Mutex<BTreeMap<(Tenant, RunId), (u64, u64)>>);

impl UnstartedRuns {
    pub(crate) fn put(&self, lease: &Lease, seq: u64) {
        let mut known = lock(&self.0);
        if known.len() >= UNSTARTED_MAX {
            known.clear();
        }
        known.insert((lease.tenant.clone(), lease.run.clone()), (lease.epoch, seq));
    }

    /// Whether nothing of the run can have started since it was released.
    pub(crate) fn take(&self, lease: &Lease, seq: u64) -> bool {
        let known = lock(&self.0).remove(&(lease.tenant.clone(), lease.run.clone()));
        known.is_some_and(|(epoch, stored)| (epoch + 1, stored) == (lease.epoch, seq))
    }
}
