//! The pulse of a node: its lease is renewed, other nodes are told what concerns them, and once in a while it is
//! looked whether anything was missed. All of it on one connection of its own, so that no crowd keeps it waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_postgres::{Client, Row, Statement};

use super::Shared;
use super::connection::{Address, DURABLE, Parameters};
use super::moment::Moment;
use super::trouble::{Stop, unavailable};
use crate::words::{number, unsigned};

/// Before a database that cannot be reached is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Before a database that takes no notifications is asked to take some again.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Ends with the store: it is aborted.
pub(super) async fn beat(shared: Arc<Shared>, address: Address) {
    let mut pulse = Pulse::new(shared, address);
    loop {
        let wait = match pulse.work().await {
            Ok(()) => pulse.next_at().saturating_duration_since(Instant::now()),
            Err(Stop(refused)) => {
                tracing::warn!(%refused, "the pulse of this node was interrupted; trying again");
                pulse.line = None;
                RETRY_AFTER
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = pulse.shared.posts.bell.notified(), if pulse.line.is_some() => {}
            () = pulse.shared.pulse.notified(), if pulse.line.is_some() => pulse.look_at = Instant::now(),
        }
    }
}

struct Pulse {
    shared: Arc<Shared>,
    address: Address,
    line: Option<Line>,
    beat_at: Instant,
    look_at: Instant,
    /// What others have to be told could not be sent, and is sent again then.
    send_again_at: Option<Instant>,
    /// Before this, the silence of others may be our own: we were away too.
    judge_others_at: Instant,
    was_cut_off: bool,
    /// Since the last renewal nobody has looked for what is left behind.
    tidies: bool,
    /// As the last look found them.
    nodes: Vec<i64>,
}

/// A connection, whoever carries its traffic, and what was asked on it before: nothing is planned twice.
struct Line {
    client: Client,
    traffic: AbortHandle,
    asked: BTreeMap<&'static str, Statement>,
}

impl Line {
    async fn ask(&mut self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, Stop> {
        let statement = match self.asked.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.asked.insert(sql, statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, parameters).await?)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.traffic.abort();
    }
}

impl Pulse {
    fn new(shared: Arc<Shared>, address: Address) -> Self {
        let now = Instant::now();
        Self {
            shared,
            address,
            line: None,
            beat_at: now,
            look_at: now,
            send_again_at: None,
            judge_others_at: now,
            was_cut_off: false,
            tidies: false,
            nodes: Vec::new(),
        }
    }

    fn next_at(&self) -> Instant {
        let next_at = self.beat_at.min(self.look_at);
        self.send_again_at.map_or(next_at, |at| next_at.min(at))
    }

    /// No step of the pulse may take so long that the lease runs out meanwhile.
    fn step_max(&self) -> Duration {
        self.shared.settings.lease / 3
    }

    async fn work(&mut self) -> Result<(), Stop> {
        if self.line.is_none() {
            self.line = Some(self.connect().await?);
            // Whatever was said while nobody listened is looked for; and whoever else was cut off has time to come back.
            let now = Instant::now();
            (self.beat_at, self.look_at) = (now, now);
            if self.was_cut_off {
                self.judge_others_at = now + self.shared.settings.lease;
            }
            self.was_cut_off = true;
        }
        // Nothing stands between two renewals for longer than one step.
        self.renew_if_due().await?;
        self.send().await?;
        self.renew_if_due().await?;
        if Instant::now() >= self.look_at {
            let next_expiry = self.look().await?;
            let every = self.shared.settings.look_every;
            self.look_at = Instant::now() + next_expiry.map_or(every, |left| left.min(every));
        }
        if std::mem::take(&mut self.tidies) {
            self.renew_if_due().await?;
            self.let_strangers_go().await?;
            self.renew_if_due().await?;
            self.take_over().await?;
        }
        Ok(())
    }

    async fn renew_if_due(&mut self) -> Result<(), Stop> {
        if Instant::now() < self.beat_at {
            return Ok(());
        }
        self.renew().await?;
        self.beat_at = Instant::now() + self.shared.settings.renew_every;
        self.tidies = true;
        Ok(())
    }

    async fn connect(&self) -> Result<Line, Stop> {
        // Some of the step is left for the first statement.
        let connect_max = self.step_max() * 3 / 4;
        let opened = async {
            let (client, connection) = self.address.connect(connect_max).await?;
            let traffic = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the connection of the pulse ended");
                }
            });
            let line = Line { client, traffic: traffic.abort_handle(), asked: BTreeMap::new() };
            line.client.batch_execute(DURABLE).await?;
            Ok(line)
        };
        tokio::time::timeout(self.step_max(), opened).await.unwrap_or_else(|_| Err(late()))
    }

    async fn ask(&mut self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, Stop> {
        let step_max = self.step_max();
        let line = self.line.as_mut().ok_or_else(|| unavailable("there is no connection"))?;
        let answered = tokio::time::timeout(step_max, line.ask(sql, parameters)).await;
        // What is asked behind an answer that does not come would wait for it too.
        answered.unwrap_or_else(|_| {
            self.line = None;
            Err(late())
        })
    }

    async fn renew(&mut self) -> Result<(), Stop> {
        let shared = self.shared.clone();
        let Some(node) = shared.leases.node() else { return Ok(()) };
        let asked = Moment::now();
        let (sql, lease_ms) = (include_str!("sql/node_renew.sql"), self.lease_ms());
        let rows = self.ask(sql, &[&node, &shared.clock.given(), &lease_ms]).await?;
        if rows.is_empty() {
            tracing::error!(node, "the lease of this node was lost; others go on with its runs");
            shared.leases.lose(node);
            shared.bells.ready();
        } else if shared.leases.renew(node, asked.plus(shared.settings.lease)) {
            self.judge_others_at = Instant::now() + shared.settings.lease;
        }
        Ok(())
    }

    fn lease_ms(&self) -> i64 {
        number(u64::try_from(self.shared.settings.lease.as_millis()).unwrap_or(u64::MAX))
    }

    /// What this node holds and nobody here knows of: the answer of a claim or a creation was lost.
    async fn let_strangers_go(&mut self) -> Result<(), Stop> {
        let shared = self.shared.clone();
        let Some(node) = shared.leases.node() else { return Ok(()) };
        let rows = self.ask("SELECT run, epoch FROM runs WHERE node = $1", &[&node]).await?;
        let held = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let held = held.collect::<Result<Vec<_>, Stop>>()?;
        let strangers = shared.leases.strangers(node, &held, shared.settings.answer_timeout);
        if strangers.is_empty() {
            return Ok(());
        }
        tracing::warn!(count = strangers.len(), "the answer of a claim was lost; its runs are let go");
        let (runs, epochs): (Vec<i64>, Vec<i64>) = strangers.into_iter().unzip();
        let sql = include_str!("sql/strangers_let_go.sql");
        self.ask(sql, &[&node, &runs, &epochs, &shared.clock.given()]).await?;
        shared.posts.ready();
        shared.bells.ready();
        Ok(())
    }

    /// Nodes that are gone. Whoever finds them frees what they held.
    async fn take_over(&mut self) -> Result<(), Stop> {
        if Instant::now() < self.judge_others_at {
            return Ok(());
        }
        let (lease_ms, at) = (self.lease_ms(), self.shared.clock.given());
        let rows = self.ask("SELECT take_over($1, $2)", &[&lease_ms, &at]).await?;
        let freed: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        if freed > 0 {
            tracing::warn!(freed, "another node is gone; its runs go on elsewhere");
            self.shared.bells.ready();
            self.shared.posts.ready();
        }
        Ok(())
    }

    /// What the database does not take is sent later: the lease, the look and the runs of those who are gone come first.
    async fn send(&mut self) -> Result<(), Stop> {
        if self.send_again_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.send_again_at = None;
        let unsent = self.shared.posts.take();
        let notes = unsent.notes(self.shared.leases.node().unwrap_or(0));
        if notes.is_empty() {
            return Ok(());
        }
        let sql = include_str!("sql/notify.sql");
        let channel = self.shared.channel.clone();
        let Err(Stop(refused)) = self.ask(sql, &[&channel, &notes]).await else { return Ok(()) };
        self.shared.posts.put_back(unsent);
        if self.line.as_ref().is_none_or(|line| line.client.is_closed()) {
            return Err(refused.into());
        }
        tracing::warn!(%refused, "other nodes could not be told what concerns them; they find it by looking");
        self.send_again_at = Some(Instant::now() + SEND_AGAIN_AFTER);
        Ok(())
    }

    /// What a lost notification would have said. Gives how long the next node to go silent has left.
    async fn look(&mut self) -> Result<Option<Duration>, Stop> {
        let shared = self.shared.clone();
        let sql = include_str!("sql/look.sql");
        let (read, read_to) = shared.watched.next();
        let rows = self.ask(sql, &[&shared.leases.node(), &shared.clock.given(), &read, &read_to]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let now: i64 = row.try_get(0)?;
        shared.clock.hear(now);
        if row.try_get(1)? {
            shared.bells.ready();
        }
        let (runs, tickets): (Vec<i64>, Vec<i64>) = (row.try_get(3)?, row.try_get(4)?);
        for (run, ticket) in runs.into_iter().zip(tickets) {
            if let Some(lease) = shared.leases.unheard(run, unsigned(ticket)) {
                shared.bells.run(lease.tenant, lease.run);
            }
        }
        let grown: Vec<i64> = row.try_get(5)?;
        shared.bells.committed(grown.into_iter().filter_map(|run| shared.watched.forget(run)));
        // Whoever is gone may have left without a word on its last commits.
        let nodes: Vec<i64> = row.try_get(6)?;
        if self.nodes.iter().any(|node| !nodes.contains(node)) {
            shared.bells.approvals_missed();
        }
        self.nodes = nodes;
        let expires_at = row.try_get::<_, Option<i64>>(2)?;
        shared.has_company.store(expires_at.is_some(), Ordering::Relaxed);
        let Some(expires_at) = expires_at else { return Ok(None) };
        if expires_at <= now {
            self.take_over().await?;
            return Ok(None);
        }
        Ok(Some(Duration::from_millis(unsigned(expires_at - now))))
    }
}

fn late() -> Stop {
    unavailable("the database is too slow for the lease of this node")
}
