//! Which node works on which run: this node's lease, the runs that it claims under it, and how it releases them.

use std::sync::{Mutex, PoisonError};

use engine::clock::Clock as _;
use engine::store::{Claim, Claimed, Lease, Loaded, StoreError, StoreFailure, Tenant};
use machine::Timestamp;
use machine::id::{RunId, ThreadId};
use tokio_postgres::Row;

use super::PostgresShared;
use super::boot_instant::BootInstant;
use super::commit::lease_lapsed;
use super::connection::{Parameters, StatementKind};
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use super::stored_run::PostgresStoredRun;
use crate::columns::{timestamp, to_i64, to_u64};

/// The tenant whose queued run was claimed last; the next tenant has the next turn.
#[derive(Default)]
pub(super) struct PostgresTenantTurn(Mutex<Option<String>>);

impl PostgresTenantTurn {
    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pass(&self, tenant: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tenant.to_owned());
    }
}

/// In the answer to a claim: the first column of the lease, and the column with the inbox tickets.
const LEASE_COLUMN: usize = 3;
const TICKETS_COLUMN: usize = LEASE_COLUMN + 9;

/// The outcome of loading claimed runs.
struct ClaimedRuns {
    claimed: Vec<Claimed>,
    refused: Option<PostgresError>,
}

impl PostgresShared {
    /// The number of this node. It joins when it first holds anything, and again after its lease was lost.
    pub(super) async fn ensure_joined(&self) -> Result<i64, PostgresError> {
        if let Some(node) = self.leases.node() {
            return Ok(node);
        }
        let _one_at_a_time = self.joining.lock().await;
        if let Some(node) = self.leases.node() {
            return Ok(node);
        }
        let asked = BootInstant::now();
        let lease_ms = to_i64(u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX));
        let sql = "SELECT * FROM join_nodes($1, $2, $3)";
        let name = escape(&self.settings.node_name);
        let rows = self.change(sql, &[&name, &lease_ms, &self.clock.override_ms()]).await?;
        let row = rows.first().ok_or_else(|| corrupt("a node joined without a number"))?;
        let node = row.try_get(0)?;
        self.clock.update(row.try_get(1)?);
        self.leases.join(node, asked.plus(self.settings.lease));
        self.poll_now.notify_one();
        Ok(node)
    }

    pub(super) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, PostgresError> {
        let node = self.ensure_joined().await?;
        let rows = match &claim {
            Claim::Run { tenant, run } => {
                let sql = include_str!("sql/claim_run.sql");
                let (tenant, run) = (escape(tenant.as_str()), escape(run.as_str()));
                let asked: Parameters<'_> = &[&node, &tenant, &run, &self.clock.override_ms()];
                self.connections.query(StatementKind::Write, sql, asked).await?
            }
            Claim::Next { limit, .. } | Claim::Urgent { limit } => {
                let limit = i32::try_from(*limit).unwrap_or(i32::MAX);
                let urgent = matches!(claim, Claim::Urgent { .. });
                let full = claim.skip_tenant();
                let not_woken = full.filter(|full| full.woken).map(|full| escape(full.tenant.as_str()));
                let not_startable = full.map(|full| escape(full.tenant.as_str()));
                let sql = include_str!("sql/claim_next.sql");
                let asked: Parameters<'_> = &[
                    &node,
                    &limit,
                    &self.turn.last(),
                    &self.clock.override_ms(),
                    &urgent,
                    &not_woken,
                    &not_startable,
                ];
                self.connections.query(StatementKind::Write, sql, asked).await?
            }
        };
        let leases = self.record_claims(node, &rows)?;
        // A claim that finds nothing writes nothing.
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        self.counters.count_sync(0);
        let ClaimedRuns { claimed, refused } = match &claim {
            Claim::Run { .. } if is_loaded(&rows)? => self.load_claimed(&leases, &rows, LEASE_COLUMN).await?,
            Claim::Run { .. } | Claim::Next { .. } | Claim::Urgent { .. } => self.load_all(&leases).await?,
        };
        match refused {
            Some(error) if claimed.is_empty() => Err(error),
            Some(PostgresError(refused)) => {
                // Return the runs claimed so far: with an error they would stay held without a worker.
                tracing::error!(%refused, "some ready runs could not be claimed");
                Ok(claimed)
            }
            None => Ok(claimed),
        }
    }

    /// Records the leases that the database has given to this node. All of them are recorded before the next await.
    fn record_claims(&self, node: i64, rows: &[Row]) -> Result<Vec<Lease>, PostgresError> {
        let mut leases = Vec::new();
        for row in rows {
            match row.try_get(0)? {
                "held" => {}
                "lapsed" => return Err(lease_lapsed()),
                "fenced" => {
                    self.leases.lose(node);
                    return Err(lease_lapsed());
                }
                other => return Err(corrupt(format!("a claim came to {other}"))),
            }
            if row.try_get::<_, Option<i64>>(LEASE_COLUMN)?.is_none() {
                continue;
            }
            // The tenant of the last queued run has had its turn.
            if row.try_get::<_, i32>(1)? > 0 {
                self.turn.pass(row.try_get(LEASE_COLUMN + 1)?);
            }
            let lease = parse_lease(row, LEASE_COLUMN)?;
            if self.leases.add(node, lease.clone(), to_u64(row.try_get(2)?)) {
                self.watched_runs.forget(lease.row);
                leases.push(lease);
            }
        }
        Ok(leases)
    }

    /// Loads in a separate statement, so that a claim holds no lock while its answer is in flight.
    async fn load_all(&self, leases: &[Lease]) -> Result<ClaimedRuns, PostgresError> {
        let runs: Vec<i64> = leases.iter().map(|lease| lease.row).collect();
        match self.connections.read("SELECT * FROM loaded($1)", &[&runs]).await {
            Ok(rows) => self.load_claimed(leases, &rows, 0).await,
            Err(error) => {
                // Forget the leases, so that the heartbeat finds them as unknown and releases them.
                leases.iter().for_each(|lease| self.leases.forget(lease));
                Err(error)
            }
        }
    }

    /// The state that workers start from, from the column `first` on.
    async fn load_claimed(
        &self,
        leases: &[Lease],
        rows: &[Row],
        first: usize,
    ) -> Result<ClaimedRuns, PostgresError> {
        let mut given = ClaimedRuns { claimed: Vec::new(), refused: None };
        for row in rows {
            let run = PostgresStoredRun::from_row(row, first)?;
            let (lease, doubt_at, last) = (run.lease.clone(), run.doubt_at, run.last_ticket());
            // The node may have lost the run in between.
            if !leases.contains(&lease) {
                continue;
            }
            let loaded = match run.load(&self.connections).await {
                Ok(loaded) => {
                    self.leases.mark_read_to(&lease, last);
                    self.leases.set_stored_seq(&lease, loaded.control.seq);
                    Ok(loaded)
                }
                // The run stays claimed: an undecodable run must not keep all others from being claimed.
                Err(PostgresError(StoreError::Failed(trouble @ StoreFailure::Corrupt(_)))) => {
                    self.leases.mark_read_to(&lease, last);
                    Err(trouble)
                }
                Err(error) => {
                    self.leases.forget(&lease);
                    given.refused = Some(error);
                    continue;
                }
            };
            let now = self.clock.now();
            let doubt_at = doubt_at.map_or(now, |at| at.max(now));
            given.claimed.push(Claimed { lease, loaded, doubt_at });
        }
        Ok(given)
    }

    pub(super) async fn load(&self, lease: &Lease) -> Result<Loaded, PostgresError> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let sql = include_str!("sql/run_load.sql");
        let (tenant, id) = (escape(lease.tenant.as_str()), escape(lease.run.as_str()));
        let asked: Parameters<'_> = &[&lease.row, &tenant, &id, &node, &to_i64(lease.epoch)];
        let rows = self.connections.read(sql, asked).await?;
        let Some(row) = rows.first() else {
            self.leases.forget(lease);
            return Err(StoreError::Fenced.into());
        };
        let run = PostgresStoredRun::from_row(row, 0)?;
        let last = run.last_ticket();
        match run.load(&self.connections).await {
            Ok(loaded) => {
                self.leases.mark_read_to(lease, last);
                self.leases.set_stored_seq(lease, loaded.control.seq);
                Ok(loaded)
            }
            Err(error @ PostgresError(StoreError::Failed(StoreFailure::Corrupt(_)))) => {
                // The worker knows now that something cannot be decoded, and needs no second notification of it.
                self.leases.mark_read_to(lease, last);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up all runs of this node: from here on, no worker in this process works on any run.
    pub(super) async fn hand_over(&self) -> Result<(), PostgresError> {
        let Some(node) = self.leases.node() else { return Ok(()) };
        self.leases.lose(node);
        self.change("SELECT hand_over($1, $2)", &[&node, &self.clock.override_ms()]).await?;
        self.outgoing.queue_ready();
        Ok(())
    }

    pub(super) async fn next_wake(&self) -> Result<Option<Timestamp>, PostgresError> {
        let sql = "SELECT min(wake_at) FROM runs WHERE wake_at IS NOT NULL AND node IS NULL";
        let rows = self.connections.read(sql, &[]).await?;
        let first = rows.first().map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?;
        Ok(first.flatten().map(timestamp))
    }
}

/// Whether the claim of one run returned the state that its worker starts from.
fn is_loaded(rows: &[Row]) -> Result<bool, PostgresError> {
    let tickets = rows.first().map(|row| row.try_get::<_, Option<Vec<i64>>>(TICKETS_COLUMN)).transpose()?;
    Ok(tickets.flatten().is_some())
}

/// The columns of a lease, from the column `first` on.
pub(super) fn parse_lease(row: &Row, first: usize) -> Result<Lease, PostgresError> {
    let text = |column: usize| row.try_get::<_, String>(first + column).map(unescape);
    Ok(Lease {
        row: row.try_get(first)?,
        tenant: Tenant::from(text(1)?.as_str()),
        run: RunId::from(text(2)?),
        thread: ThreadId::from(text(3)?),
        epoch: to_u64(row.try_get(first + 4)?),
    })
}
