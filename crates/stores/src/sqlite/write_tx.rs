//! The open transaction that a command runs in, and the effects that count only once it is committed.

use std::cell::{Cell, RefCell};

use engine::store::{Lease, StoreError};
use machine::Timestamp;
use rusqlite::{CachedStatement, Connection, Params};

use super::errors::SqliteError;
use super::lease::SqliteLeases;

pub(super) struct WriteTx<'w> {
    connection: &'w Connection,
    pub(super) leases: &'w SqliteLeases,
    pub(super) now: Timestamp,
    last_arrival: &'w Cell<i64>,
    effects: RefCell<PendingEffects>,
}

/// What a command changes outside of the file.
#[derive(Default)]
pub(super) struct PendingEffects {
    pub(super) commits: u64,
    pub(super) bytes: u64,
    /// Runs that were leased. The leases count at once, so that no claim takes these runs during the commit; they
    /// are revoked if it fails.
    pub(super) leased: Vec<i64>,
    /// Runs to release once the commit has succeeded, with their stored epochs.
    pub(super) released: Vec<(i64, u64)>,
    /// Runs that have ended once the commit has succeeded.
    pub(super) ended: Vec<i64>,
}

impl<'w> WriteTx<'w> {
    pub(super) fn new(
        connection: &'w Connection,
        leases: &'w SqliteLeases,
        now: Timestamp,
        last_arrival: &'w Cell<i64>,
    ) -> Self {
        Self { connection, leases, now, last_arrival, effects: RefCell::default() }
    }

    pub(super) fn connection(&self) -> &'w Connection {
        self.connection
    }

    pub(super) fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'w>> {
        self.connection.prepare_cached(sql)
    }

    /// Returns the number of changed rows.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, SqliteError> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Later than every arrival before it.
    pub(super) fn next_arrival(&self) -> i64 {
        let arrival = i64::try_from(self.now.0.saturating_mul(1_000))
            .unwrap_or(i64::MAX - 1)
            .max(self.last_arrival.get().saturating_add(1));
        self.last_arrival.set(arrival);
        arrival
    }

    pub(super) fn check_lease(&self, lease: &Lease) -> Result<(), SqliteError> {
        if self.leases.is_current(lease) { Ok(()) } else { Err(StoreError::Fenced.into()) }
    }

    /// Counts a command that changed a run.
    pub(super) fn count_commit(&self, bytes: u64) {
        let mut effects = self.effects.borrow_mut();
        effects.commits += 1;
        effects.bytes += bytes;
    }

    pub(super) fn add_lease(&self, lease: Lease) {
        self.effects.borrow_mut().leased.push(lease.row);
        self.leases.lock().add(lease);
    }

    pub(super) fn release_after_commit(&self, row: i64, stored_epoch: u64) {
        self.effects.borrow_mut().released.push((row, stored_epoch));
    }

    pub(super) fn forget_after_commit(&self, row: i64) {
        self.effects.borrow_mut().ended.push(row);
    }

    pub(super) fn into_effects(self) -> PendingEffects {
        self.effects.into_inner()
    }
}
