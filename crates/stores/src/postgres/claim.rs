//! Who works on which run: this node's lease, what it claims under it, and how it lets go.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use engine::clock::Clock as _;
use engine::store::{Claim, Claimed, Lease, Loaded, Refused, Trouble};
use machine::Timestamp;
use tokio_postgres::Row;

use super::Shared;
use super::commit::lapsed;
use super::stored_run::StoredRun;
use super::text::kept;
use super::trouble::{Stop, corrupt};
use crate::words::{number, timestamp};

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
        let asked = Instant::now();
        let lease_ms = number(u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX));
        let sql = "SELECT * FROM join_nodes($1, $2, $3)";
        let name = kept(&self.settings.node_name);
        let rows = self.change(sql, &[&name, &lease_ms, &self.clock.given()]).await?;
        let row = rows.first().ok_or_else(|| corrupt("a node joined without a number"))?;
        let node = row.try_get(0)?;
        self.clock.hear(row.try_get(1)?);
        self.leases.join(node, asked + self.settings.lease);
        self.pulse.notify_one();
        Ok(node)
    }

    pub(super) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, Stop> {
        let node = self.node().await?;
        let given = match &claim {
            Claim::Run { tenant, run } => {
                let sql = include_str!("sql/claim_run.sql");
                let (tenant, run) = (kept(tenant.as_str()), kept(run.as_str()));
                let rows = self.change(sql, &[&node, &tenant, &run, &self.clock.given()]).await?;
                self.given(node, &rows, 1).await?
            }
            Claim::Next { limit } => {
                let limit = i32::try_from(*limit).unwrap_or(i32::MAX);
                let sql = include_str!("sql/claim_next.sql");
                let served = self.turn.last();
                let rows = self.change(sql, &[&node, &limit, &served, &self.clock.given()]).await?;
                self.pass_turn(&rows)?;
                self.given(node, &rows, 2).await?
            }
        };
        match given.refused {
            Some(stop) if given.claimed.is_empty() => Err(stop),
            Some(Stop(refused)) => {
                // What is given out by now would be held by nobody.
                tracing::error!(%refused, "not all that is ready could be claimed");
                Ok(given.claimed)
            }
            None => Ok(given.claimed),
        }
    }

    /// The last of the queued runs says whose turn is over.
    fn pass_turn(&self, rows: &[Row]) -> Result<(), Stop> {
        let Some(row) = rows.last() else { return Ok(()) };
        let queued: i32 = row.try_get(1)?;
        if queued > 0 {
            self.turn.pass(row.try_get(3)?);
        }
        Ok(())
    }

    /// Runs that the database has given to this node; the columns of the run begin at `first`.
    async fn given(&self, node: i64, rows: &[Row], first: usize) -> Result<Given, Stop> {
        let mut given = Given { claimed: Vec::new(), refused: None };
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
            if row.try_get::<_, Option<i64>>(first)?.is_none() {
                continue;
            }
            let run = StoredRun::of(row, first)?;
            let (lease, doubt_at) = (run.lease.clone(), run.doubt_at);
            if !self.leases.give(node, lease.clone(), run.last_ticket()) {
                continue;
            }
            match run.load(&self.connections).await {
                Ok(loaded) => {
                    let now = self.clock.now();
                    let doubt_at = doubt_at.map_or(now, |at| at.max(now));
                    given.claimed.push(Claimed { lease, loaded, doubt_at });
                }
                Err(Stop(Refused::Trouble(Trouble::Corrupt(why)))) => {
                    // It stays held: a run that cannot be read must not keep all others from being given out.
                    tracing::error!(run = %lease.run, why, "a run cannot be read and stands still");
                    given.refused = Some(corrupt(why));
                }
                Err(stop) => {
                    // Nobody here knows it any more, so that it is found and let go.
                    self.leases.forget(&lease);
                    given.refused = Some(stop);
                }
            }
        }
        Ok(given)
    }

    pub(super) async fn load(&self, lease: &Lease) -> Result<Loaded, Stop> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(Refused::Fenced)?;
        let sql = include_str!("sql/run_load.sql");
        let rows = self.connections.read(sql, &[&lease.row, &node, &number(lease.epoch)]).await?;
        let Some(row) = rows.first() else {
            self.leases.forget(lease);
            return Err(Refused::Fenced.into());
        };
        let run = StoredRun::of(row, 0)?;
        let last = run.last_ticket();
        let loaded = run.load(&self.connections).await?;
        self.leases.hear(lease, last);
        Ok(loaded)
    }

    /// True if the run is let go; false while its inbox holds an item.
    pub(super) async fn release(&self, lease: &Lease) -> Result<bool, Stop> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(Refused::Fenced)?;
        let row = self.release_row(lease.row, node, number(lease.epoch), false).await?;
        match row.try_get(0)? {
            "kept" => Ok(false),
            "released" => {
                self.leases.forget(lease);
                if row.try_get(1)? {
                    self.posts.ready();
                }
                Ok(true)
            }
            "fenced" => {
                self.leases.forget(lease);
                Err(Refused::Fenced.into())
            }
            other => Err(corrupt(format!("a release came to {other}"))),
        }
    }

    async fn release_row(&self, run: i64, node: i64, epoch: i64, whatever: bool) -> Result<Row, Stop> {
        let sql = "SELECT * FROM release($1, $2, $3, $4, $5)";
        let rows = self.change(sql, &[&run, &node, &epoch, &whatever, &self.clock.given()]).await?;
        rows.into_iter().next().ok_or_else(|| corrupt("a release came to nothing"))
    }

    /// Lets go of what this node holds and nobody here knows of: the answer of a claim or a creation was lost.
    pub(super) async fn let_strangers_go(&self, node: i64, held_there: &[(i64, i64)]) -> Result<(), Stop> {
        for (run, epoch) in self.leases.strangers(node, held_there, self.settings.answer_timeout) {
            tracing::warn!(run, "the answer of a claim was lost; the run is let go");
            self.release_row(run, node, epoch, true).await?;
            self.posts.ready();
            self.bells.ready();
        }
        Ok(())
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
