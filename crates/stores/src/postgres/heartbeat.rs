//! A node's heartbeat: it renews the node's lease, sends notifications to other nodes, and polls now and then for
//! notifications that were lost. It has a connection of its own, so that load on the pool cannot delay it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_postgres::{Client, Row, Statement};

use super::PostgresShared;
use super::boot_instant::BootInstant;
use super::connection::{Address, Parameters, REQUIRE_DURABLE_COMMIT};
use super::errors::{PostgresError, unavailable};
use crate::columns::{to_i64, to_u64};

/// Pause before reconnecting to an unreachable database.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Pause before sending again when the database refused notifications.
const SEND_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runs until the store aborts it.
pub(super) async fn run(shared: Arc<PostgresShared>, address: Address) {
    let mut heartbeat = Heartbeat::new(shared, address);
    loop {
        let wait = match heartbeat.tick().await {
            Ok(()) => heartbeat.next_at().saturating_duration_since(Instant::now()),
            Err(PostgresError(refused)) => {
                tracing::warn!(%refused, "this node's heartbeat failed; retrying");
                heartbeat.connection = None;
                RETRY_AFTER
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = heartbeat.shared.outgoing.changed.notified(), if heartbeat.connection.is_some() => {}
            () = heartbeat.shared.poll_now.notified(), if heartbeat.connection.is_some() => heartbeat.poll_at = Instant::now(),
        }
    }
}

struct Heartbeat {
    shared: Arc<PostgresShared>,
    address: Address,
    connection: Option<HeartbeatConnection>,
    renew_at: Instant,
    poll_at: Instant,
    /// Sending notifications failed; they are sent again at this time.
    retry_send_at: Option<Instant>,
    /// Until then another node's missing renewals may be our fault: we were disconnected too.
    expire_others_at: Instant,
    was_disconnected: bool,
    /// Leftovers have not been searched for since the last renewal.
    cleanup_due: bool,
    /// The nodes found by the last poll.
    nodes: Vec<i64>,
}

/// A connection, the task that drives it, and its prepared statements: no statement is planned twice.
struct HeartbeatConnection {
    client: Client,
    traffic: AbortHandle,
    statements: BTreeMap<&'static str, Statement>,
}

impl HeartbeatConnection {
    async fn query(
        &mut self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements.insert(sql, statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, parameters).await?)
    }
}

impl Drop for HeartbeatConnection {
    fn drop(&mut self) {
        self.traffic.abort();
    }
}

impl Heartbeat {
    fn new(shared: Arc<PostgresShared>, address: Address) -> Self {
        let now = Instant::now();
        Self {
            shared,
            address,
            connection: None,
            renew_at: now,
            poll_at: now,
            retry_send_at: None,
            expire_others_at: now,
            was_disconnected: false,
            cleanup_due: false,
            nodes: Vec::new(),
        }
    }

    fn next_at(&self) -> Instant {
        let next_at = self.renew_at.min(self.poll_at);
        self.retry_send_at.map_or(next_at, |at| next_at.min(at))
    }

    /// The longest that one step may take without the lease expiring in the meantime.
    fn step_max(&self) -> Duration {
        self.shared.settings.lease / 3
    }

    async fn tick(&mut self) -> Result<(), PostgresError> {
        if self.connection.is_none() {
            self.connection = Some(self.connect().await?);
            // Poll for notifications missed while disconnected, and give other nodes that were cut off time to return.
            let now = Instant::now();
            (self.renew_at, self.poll_at) = (now, now);
            if self.was_disconnected {
                self.expire_others_at = now + self.shared.settings.lease;
            }
            self.was_disconnected = true;
        }
        // At most one step runs between two renewals.
        self.renew_if_due().await?;
        self.send().await?;
        self.renew_if_due().await?;
        if Instant::now() >= self.poll_at {
            let next_expiry = self.poll().await?;
            let every = self.shared.settings.poll_every;
            self.poll_at = Instant::now() + next_expiry.map_or(every, |left| left.min(every));
        }
        if std::mem::take(&mut self.cleanup_due) {
            self.renew_if_due().await?;
            self.release_unknown_leases().await?;
            self.renew_if_due().await?;
            self.take_over().await?;
        }
        Ok(())
    }

    async fn renew_if_due(&mut self) -> Result<(), PostgresError> {
        if Instant::now() < self.renew_at {
            return Ok(());
        }
        self.renew().await?;
        self.renew_at = Instant::now() + self.shared.settings.renew_every;
        self.cleanup_due = true;
        Ok(())
    }

    async fn connect(&self) -> Result<HeartbeatConnection, PostgresError> {
        // Leave part of the step for the first statement.
        let connect_max = self.step_max() * 3 / 4;
        let opened = async {
            let (client, connection) = self.address.connect(connect_max).await?;
            let traffic = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the heartbeat's connection ended");
                }
            });
            let connection =
                HeartbeatConnection { client, traffic: traffic.abort_handle(), statements: BTreeMap::new() };
            connection.client.batch_execute(REQUIRE_DURABLE_COMMIT).await?;
            Ok(connection)
        };
        tokio::time::timeout(self.step_max(), opened).await.unwrap_or_else(|_| Err(late()))
    }

    async fn query(
        &mut self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let step_max = self.step_max();
        let connection = self.connection.as_mut().ok_or_else(|| unavailable("there is no connection"))?;
        let answered = tokio::time::timeout(step_max, connection.query(sql, parameters)).await;
        // Later statements on this connection would wait for the missing answer too.
        answered.unwrap_or_else(|_| {
            self.connection = None;
            Err(late())
        })
    }

    async fn renew(&mut self) -> Result<(), PostgresError> {
        let shared = self.shared.clone();
        let Some(node) = shared.leases.node() else { return Ok(()) };
        let asked = BootInstant::now();
        let (sql, lease_ms) = (include_str!("sql/node_renew.sql"), self.lease_ms());
        let rows = self.query(sql, &[&node, &shared.clock.override_ms(), &lease_ms]).await?;
        if rows.is_empty() {
            tracing::error!(node, "this node lost its lease; other nodes continue its runs");
            shared.leases.lose(node);
            shared.incoming.push_ready();
        } else if shared.leases.renew(node, asked.plus(shared.settings.lease)) {
            self.expire_others_at = Instant::now() + shared.settings.lease;
        }
        Ok(())
    }

    fn lease_ms(&self) -> i64 {
        to_i64(u64::try_from(self.shared.settings.lease.as_millis()).unwrap_or(u64::MAX))
    }

    /// Runs that the database assigns to this node but the node does not know: the answer to a claim or creation was
    /// lost.
    async fn release_unknown_leases(&mut self) -> Result<(), PostgresError> {
        let shared = self.shared.clone();
        let Some(node) = shared.leases.node() else { return Ok(()) };
        let rows = self.query("SELECT run, epoch FROM runs WHERE node = $1", &[&node]).await?;
        let held = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let held = held.collect::<Result<Vec<_>, PostgresError>>()?;
        let unknown = shared.leases.unknown_leases(node, &held, shared.settings.answer_timeout);
        if unknown.is_empty() {
            return Ok(());
        }
        tracing::warn!(count = unknown.len(), "the response to a claim was lost; releasing its runs");
        let (runs, epochs): (Vec<i64>, Vec<i64>) = unknown.into_iter().unzip();
        let sql = include_str!("sql/release_foreign.sql");
        self.query(sql, &[&node, &runs, &epochs, &shared.clock.override_ms()]).await?;
        shared.outgoing.queue_ready();
        shared.incoming.push_ready();
        Ok(())
    }

    /// Releases the runs of nodes whose lease has expired. Any node may do this.
    async fn take_over(&mut self) -> Result<(), PostgresError> {
        if Instant::now() < self.expire_others_at {
            return Ok(());
        }
        let (lease_ms, at) = (self.lease_ms(), self.shared.clock.override_ms());
        let rows = self.query("SELECT take_over($1, $2)", &[&lease_ms, &at]).await?;
        let freed: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        if freed > 0 {
            tracing::warn!(freed, "another node is gone; other nodes continue its runs");
            self.shared.incoming.push_ready();
            self.shared.outgoing.queue_ready();
        }
        Ok(())
    }

    /// Notifications that the database refuses are sent later: renewing, polling and taking over runs come first.
    async fn send(&mut self) -> Result<(), PostgresError> {
        if self.retry_send_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.retry_send_at = None;
        let pending = self.shared.outgoing.take();
        let payloads = pending.payloads(self.shared.leases.node().unwrap_or(0));
        if payloads.is_empty() {
            return Ok(());
        }
        let sql = include_str!("sql/notify.sql");
        let channel = self.shared.channel.clone();
        let Err(PostgresError(refused)) = self.query(sql, &[&channel, &payloads]).await else {
            return Ok(());
        };
        self.shared.outgoing.put_back(pending);
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            return Err(refused.into());
        }
        tracing::warn!(%refused, "NOTIFY failed; other nodes will pick this up by polling");
        self.retry_send_at = Some(Instant::now() + SEND_RETRY_AFTER);
        Ok(())
    }

    /// Finds what lost notifications would have announced. Returns the time until the next node's lease expires.
    async fn poll(&mut self) -> Result<Option<Duration>, PostgresError> {
        let shared = self.shared.clone();
        let sql = include_str!("sql/snapshot.sql");
        let (runs, read_to) = shared.watched_runs.next_batch();
        let (threads, last_runs) = shared.watched_threads.next_batch();
        let (node, at) = (shared.leases.node(), shared.clock.override_ms());
        let rows = self.query(sql, &[&node, &at, &runs, &read_to, &threads, &last_runs]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let now: i64 = row.try_get(0)?;
        shared.clock.update(now);
        if row.try_get(1)? {
            shared.incoming.push_ready();
        }
        let (runs, tickets): (Vec<i64>, Vec<i64>) = (row.try_get(3)?, row.try_get(4)?);
        for (run, ticket) in runs.into_iter().zip(tickets) {
            if let Some(lease) = shared.leases.for_unread_run(run, to_u64(ticket)) {
                shared.incoming.push_run(lease.tenant, lease.run);
            }
        }
        let grown: Vec<i64> = row.try_get(5)?;
        shared.incoming.push_committed(grown.into_iter().filter_map(|run| shared.watched_runs.forget(run)));
        let grown: Vec<i64> = row.try_get(7)?;
        let grown = grown.into_iter().filter_map(|thread| shared.watched_threads.forget(thread));
        shared.incoming.push_threads(grown);
        // A node that is gone may not have sent the notifications for its last commits.
        let nodes: Vec<i64> = row.try_get(6)?;
        if self.nodes.iter().any(|node| !nodes.contains(node)) {
            shared.incoming.push_approvals_missed();
        }
        self.nodes = nodes;
        let expires_at = row.try_get::<_, Option<i64>>(2)?;
        shared.has_peers.store(expires_at.is_some(), Ordering::Relaxed);
        let Some(expires_at) = expires_at else { return Ok(None) };
        if expires_at <= now {
            self.take_over().await?;
            return Ok(None);
        }
        Ok(Some(Duration::from_millis(to_u64(expires_at - now))))
    }
}

fn late() -> PostgresError {
    unavailable("the database is too slow for the lease of this node")
}
