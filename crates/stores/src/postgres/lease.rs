//! What this node holds, as far as it knows: the node's own lease, and the leases of its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::store::Lease;
use machine::inbox::Ticket;

use super::boot_instant::BootInstant;

/// An in-memory copy of the rows: it only decides whether a statement may still be sent.
pub(super) struct PostgresLeases {
    held: Mutex<PostgresHeldLeases>,
}

#[derive(Default)]
struct PostgresHeldLeases {
    node: Option<NodeLease>,
    leases: BTreeMap<i64, KnownLease>,
    /// Runs that the database assigns to this node but that this process does not know of, and since when.
    unknown_since: BTreeMap<(i64, i64), Instant>,
}

/// The number of this node in the database, and until when it may send.
#[derive(Clone, Copy, Debug)]
struct NodeLease {
    node: i64,
    until: BootInstant,
}

struct KnownLease {
    lease: Lease,
    /// The last inbox row that the worker has read.
    read_to: Ticket,
    /// The last event that the worker knows to be stored.
    seq: u64,
}

impl PostgresLeases {
    pub(super) fn new() -> Self {
        Self { held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PostgresHeldLeases> {
        // A change cut short by a panic can leave a lease out, but never invent one.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn node(&self) -> Option<i64> {
        self.lock().node.map(|lease| lease.node)
    }

    /// `until` is counted from before the database was asked, so that the lease ends here no later than there.
    pub(super) fn join(&self, node: i64, until: BootInstant) {
        let mut held = self.lock();
        *held = PostgresHeldLeases { node: Some(NodeLease { node, until }), ..PostgresHeldLeases::default() };
    }

    /// True if the lease had expired here before it was renewed.
    pub(super) fn renew(&self, node: i64, until: BootInstant) -> bool {
        let mut held = self.lock();
        match &mut held.node {
            Some(lease) if lease.node == node => {
                let lapsed = lease.until.has_passed();
                lease.until = until;
                lapsed
            }
            Some(_) | None => false,
        }
    }

    /// The lease of this node is lost: it no longer owns anything that it held.
    pub(super) fn lose(&self, node: i64) {
        let mut held = self.lock();
        if held.node.is_some_and(|lease| lease.node == node) {
            *held = PostgresHeldLeases::default();
        }
    }

    pub(super) fn is_current(&self, lease: &Lease) -> bool {
        self.lock().leases.get(&lease.row).is_some_and(|known| known.lease == *lease)
    }

    pub(super) fn may_send(&self, lease: &Lease) -> bool {
        let held = self.lock();
        held.node.is_some_and(|node| !node.until.has_passed())
            && held.leases.get(&lease.row).is_some_and(|known| known.lease == *lease)
    }

    /// False if the node that claimed the run has lost its lease meanwhile.
    pub(super) fn add(&self, node: i64, lease: Lease, seq: u64) -> bool {
        let mut held = self.lock();
        let later = held.leases.get(&lease.row).is_some_and(|known| known.lease.epoch > lease.epoch);
        let ours = !later && held.node.is_some_and(|lease| lease.node == node);
        if ours {
            held.leases.insert(lease.row, KnownLease { lease, read_to: 0, seq });
        }
        ours
    }

    /// The worker has read the inbox up to this ticket.
    pub(super) fn mark_read_to(&self, lease: &Lease, read_to: Ticket) {
        self.change(lease, |known| known.read_to = known.read_to.max(read_to));
    }

    /// The log is known to be stored up to this event.
    pub(super) fn set_stored_seq(&self, lease: &Lease, seq: u64) {
        self.change(lease, |known| known.seq = seq);
    }

    fn change(&self, lease: &Lease, change: impl FnOnce(&mut KnownLease)) {
        let mut held = self.lock();
        if let Some(known) = held.leases.get_mut(&lease.row).filter(|known| known.lease == *lease) {
            change(known);
        }
    }

    /// The last stored event, as far as the worker knows; `None` if the run is not held here.
    pub(super) fn seq(&self, lease: &Lease) -> Option<u64> {
        self.lock().leases.get(&lease.row).filter(|known| known.lease == *lease).map(|known| known.seq)
    }

    pub(super) fn forget(&self, lease: &Lease) {
        let mut held = self.lock();
        if held.leases.get(&lease.row).is_some_and(|known| known.lease == *lease) {
            held.leases.remove(&lease.row);
        }
    }

    /// The lease of the run with this number, if it is held here.
    pub(super) fn for_run(&self, run: i64) -> Option<Lease> {
        self.lock().leases.get(&run).map(|known| known.lease.clone())
    }

    /// The same, if the run has inbox items that its worker has not read.
    pub(super) fn for_unread_run(&self, run: i64, last: Ticket) -> Option<Lease> {
        self.lock().leases.get(&run).filter(|known| known.read_to < last).map(|known| known.lease.clone())
    }

    /// Of the runs that the database assigns to this node, those that it has not known for so long that no answer to a
    /// claim can still be in flight: the answer was lost.
    pub(super) fn unknown_leases(
        &self,
        node: i64,
        held_in_database: &[(i64, i64)],
        answer_max: Duration,
    ) -> Vec<(i64, i64)> {
        let mut held = self.lock();
        if held.node.is_none_or(|lease| lease.node != node) {
            return Vec::new();
        }
        let now = Instant::now();
        let known = |run: i64, epoch: i64, leases: &BTreeMap<i64, KnownLease>| {
            leases.get(&run).is_some_and(|known| i64::try_from(known.lease.epoch) == Ok(epoch))
        };
        let unknown: BTreeSet<(i64, i64)> = held_in_database
            .iter()
            .copied()
            .filter(|(run, epoch)| !known(*run, *epoch, &held.leases))
            .collect();
        held.unknown_since.retain(|one, _| unknown.contains(one));
        for one in &unknown {
            held.unknown_since.entry(*one).or_insert(now);
        }
        held.unknown_since
            .iter()
            .filter(|(_, since)| now - **since >= answer_max)
            .map(|(one, _)| *one)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(run: i64, epoch: u64) -> Lease {
        Lease { tenant: "acme".into(), thread: "thr".into(), run: "run".into(), epoch, row: run }
    }

    #[test]
    fn nothing_is_sent_once_the_lease_of_the_node_has_run_out() {
        let leases = PostgresLeases::new();
        let (past, future) = (BootInstant::now(), BootInstant::now().plus(Duration::from_secs(60)));
        leases.join(1, past);
        assert!(leases.add(1, lease(7, 1), 0));
        assert!(leases.is_current(&lease(7, 1)));
        assert!(!leases.may_send(&lease(7, 1)));
        assert!(leases.renew(1, future), "it had run out before");
        assert!(leases.may_send(&lease(7, 1)));
        assert!(!leases.may_send(&lease(7, 2)), "another epoch is another lease");
        leases.lose(1);
        assert!(!leases.may_send(&lease(7, 1)));
        assert!(!leases.add(1, lease(7, 1), 0), "a lost node cannot hold what it claims");
    }

    #[test]
    fn an_unknown_lease_is_reported_only_after_a_while() {
        let leases = PostgresLeases::new();
        leases.join(1, BootInstant::now());
        assert!(leases.add(1, lease(7, 1), 0));
        assert!(leases.unknown_leases(1, &[(7, 1), (8, 3)], Duration::from_secs(60)).is_empty());
        assert_eq!(leases.unknown_leases(1, &[(7, 1), (8, 3)], Duration::ZERO), [(8, 3)]);
        assert!(leases.unknown_leases(1, &[(7, 1)], Duration::ZERO).is_empty());
        assert!(leases.unknown_leases(2, &[(8, 3)], Duration::ZERO).is_empty(), "another node's");
    }
}
