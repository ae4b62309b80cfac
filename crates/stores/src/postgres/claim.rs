//! Who works on which run: this node's lease, what it claims under it, and how it lets go.

use std::sync::{Mutex, PoisonError};

use engine::clock::Clock as _;
use engine::store::{Claim, Claimed, Lease, Loaded, StoreError, StoreFailure, Tenant};
use machine::Timestamp;
use machine::id::{RunId, ThreadId};
use tokio_postgres::Row;

use super::Shared;
use super::commit::lapsed;
use super::connection::{Does, Parameters};
use super::moment::Moment;
use super::stored_run::StoredRun;
use super::text::{kept, told};
use super::trouble::{Stop, corrupt};
use crate::words::{number, timestamp, unsigned};

/// The tenant whose queued run was given out last; the next tenant's turn is next.
#[derive(Default)]
pub(super) struct Turn(Mutex<Option<String>>);

impl Turn {
    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pass(&self, tenant: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tenant.to_owned());
    }
}

/// In the answer of a claim, the column at which the lease begins, and the one with the rows of the inbox.
const LEASE: usize = 3;
const TICKETS: usize = LEASE + 9;

/// What became of runs that were given out.
struct Given {
    claimed: Vec<Claimed>,
    refused: Option<Stop>,
}

impl Shared {
    /// The number of this node. It joins when it first holds anything, and again when its lease was lost.
    pub(super) async fn node(&self) -> Result<i64, Stop> {
        if let Some(node) = self.leases.node() {
            return Ok(node);
        }
        let _one_at_a_time = self.joining.lock().await;
        if let Some(node) = self.leases.node() {
            return Ok(node);
        }
        let asked = Moment::now();
        let lease_ms = number(u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX));
        let sql = "SELECT * FROM join_nodes($1, $2, $3)";
        let name = kept(&self.settings.node_name);
        let rows = self.change(sql, &[&name, &lease_ms, &self.clock.given()]).await?;
        let row = rows.first().ok_or_else(|| corrupt("a node joined without a number"))?;
        let node = row.try_get(0)?;
        self.clock.hear(row.try_get(1)?);
        self.leases.join(node, asked.plus(self.settings.lease));
        self.pulse.notify_one();
        Ok(node)
    }

    pub(super) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, Stop> {
        let node = self.node().await?;
        let rows = match &claim {
            Claim::Run { tenant, run } => {
                let sql = include_str!("sql/claim_run.sql");
                let (tenant, run) = (kept(tenant.as_str()), kept(run.as_str()));
                let asked: Parameters<'_> = &[&node, &tenant, &run, &self.clock.given()];
                self.connections.ask(Does::Write, sql, asked).await?
            }
            Claim::Next { limit, .. } | Claim::Urgent { limit } => {
                let limit = i32::try_from(*limit).unwrap_or(i32::MAX);
                let pressing = matches!(claim, Claim::Urgent { .. });
                let full = claim.skip_tenant();
                let not_woken = full.filter(|full| full.woken).map(|full| kept(full.tenant.as_str()));
                let not_startable = full.map(|full| kept(full.tenant.as_str()));
                let sql = include_str!("sql/claim_next.sql");
                let asked: Parameters<'_> = &[
                    &node,
                    &limit,
                    &self.turn.last(),
                    &self.clock.given(),
                    &pressing,
                    &not_woken,
                    &not_startable,
                ];
                self.connections.ask(Does::Write, sql, asked).await?
            }
        };
        let leases = self.given(node, &rows)?;
        // A claim that finds nothing writes nothing.
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        self.tally.sync(0);
        let Given { claimed, refused } = match &claim {
            Claim::Run { .. } if is_loaded(&rows)? => self.take_up(&leases, &rows, LEASE).await?,
            Claim::Run { .. } | Claim::Next { .. } | Claim::Urgent { .. } => self.load_all(&leases).await?,
        };
        match refused {
            Some(stop) if claimed.is_empty() => Err(stop),
            Some(Stop(refused)) => {
                // What is given out by now would be held by nobody.
                tracing::error!(%refused, "not all that is ready could be claimed");
                Ok(claimed)
            }
            None => Ok(claimed),
        }
    }

    /// Leases that the database has given to this node. All of them are known before anything is waited for again.
    fn given(&self, node: i64, rows: &[Row]) -> Result<Vec<Lease>, Stop> {
        let mut leases = Vec::new();
        for row in rows {
            match row.try_get(0)? {
                "held" => {}
                "lapsed" => return Err(lapsed()),
                "fenced" => {
                    self.leases.lose(node);
                    return Err(lapsed());
                }
                other => return Err(corrupt(format!("a claim came to {other}"))),
            }
            if row.try_get::<_, Option<i64>>(LEASE)?.is_none() {
                continue;
            }
            // The last of the queued runs says whose turn is over.
            if row.try_get::<_, i32>(1)? > 0 {
                self.turn.pass(row.try_get(LEASE + 1)?);
            }
            let lease = lease_of(row, LEASE)?;
            if self.leases.give(node, lease.clone(), unsigned(row.try_get(2)?)) {
                self.watched.forget(lease.row);
                leases.push(lease);
            }
        }
        Ok(leases)
    }

    /// In a statement of its own: a claim holds no lock while its answer is on the way.
    async fn load_all(&self, leases: &[Lease]) -> Result<Given, Stop> {
        let runs: Vec<i64> = leases.iter().map(|lease| lease.row).collect();
        match self.connections.read("SELECT * FROM loaded($1)", &[&runs]).await {
            Ok(rows) => self.take_up(leases, &rows, 0).await,
            Err(stop) => {
                // Nobody here knows them any more, so that they are found and let go.
                leases.iter().for_each(|lease| self.leases.forget(lease));
                Err(stop)
            }
        }
    }

    /// What workers start from, from the column `first` on.
    async fn take_up(&self, leases: &[Lease], rows: &[Row], first: usize) -> Result<Given, Stop> {
        let mut given = Given { claimed: Vec::new(), refused: None };
        for row in rows {
            let run = StoredRun::of(row, first)?;
            let (lease, doubt_at, last) = (run.lease.clone(), run.doubt_at, run.last_ticket());
            // Its node may have lost it in between.
            if !leases.contains(&lease) {
                continue;
            }
            let loaded = match run.load(&self.connections).await {
                Ok(loaded) => {
                    self.leases.hear(&lease, last);
                    self.leases.stored(&lease, loaded.control.seq);
                    Ok(loaded)
                }
                // It is held: a run that cannot be decoded must not keep all others from being given out.
                Err(Stop(StoreError::Failed(trouble @ StoreFailure::Corrupt(_)))) => {
                    self.leases.hear(&lease, last);
                    Err(trouble)
                }
                Err(stop) => {
                    self.leases.forget(&lease);
                    given.refused = Some(stop);
                    continue;
                }
            };
            let now = self.clock.now();
            let doubt_at = doubt_at.map_or(now, |at| at.max(now));
            given.claimed.push(Claimed { lease, loaded, doubt_at });
        }
        Ok(given)
    }

    pub(super) async fn load(&self, lease: &Lease) -> Result<Loaded, Stop> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let sql = include_str!("sql/run_load.sql");
        let (tenant, id) = (kept(lease.tenant.as_str()), kept(lease.run.as_str()));
        let asked: Parameters<'_> = &[&lease.row, &tenant, &id, &node, &number(lease.epoch)];
        let rows = self.connections.read(sql, asked).await?;
        let Some(row) = rows.first() else {
            self.leases.forget(lease);
            return Err(StoreError::Fenced.into());
        };
        let run = StoredRun::of(row, 0)?;
        let last = run.last_ticket();
        match run.load(&self.connections).await {
            Ok(loaded) => {
                self.leases.hear(lease, last);
                self.leases.stored(lease, loaded.control.seq);
                Ok(loaded)
            }
            Err(stop @ Stop(StoreError::Failed(StoreFailure::Corrupt(_)))) => {
                // Its worker has seen that there is something that cannot be decoded, and needs no second ring for it.
                self.leases.hear(lease, last);
                Err(stop)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Nobody in this process works on any run from here on.
    pub(super) async fn hand_over(&self) -> Result<(), Stop> {
        let Some(node) = self.leases.node() else { return Ok(()) };
        self.leases.lose(node);
        self.change("SELECT hand_over($1, $2)", &[&node, &self.clock.given()]).await?;
        self.posts.ready();
        Ok(())
    }

    pub(super) async fn next_wake(&self) -> Result<Option<Timestamp>, Stop> {
        let sql = "SELECT min(wake_at) FROM runs WHERE wake_at IS NOT NULL AND node IS NULL";
        let rows = self.connections.read(sql, &[]).await?;
        let first = rows.first().map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?;
        Ok(first.flatten().map(timestamp))
    }
}

/// Whether a claim of one run came with what its worker starts from.
fn is_loaded(rows: &[Row]) -> Result<bool, Stop> {
    let tickets = rows.first().map(|row| row.try_get::<_, Option<Vec<i64>>>(TICKETS)).transpose()?;
    Ok(tickets.flatten().is_some())
}

/// The columns of a lease, from the column `first` on.
pub(super) fn lease_of(row: &Row, first: usize) -> Result<Lease, Stop> {
    let text = |column: usize| row.try_get::<_, String>(first + column).map(told);
    Ok(Lease {
        row: row.try_get(first)?,
        tenant: Tenant::from(text(1)?.as_str()),
        run: RunId::from(text(2)?),
        thread: ThreadId::from(text(3)?),
        epoch: unsigned(row.try_get(first + 4)?),
    })
}
