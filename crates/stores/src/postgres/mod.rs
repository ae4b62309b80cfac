//! A store in PostgreSQL, for many nodes: one database, any number of processes, each of which may die at any time.
//!
//! **Who may write.** A node has a lease, a row that it renews. A run has a fence: the node that holds it, the run
//! lease's number (`epoch`), and the sequence number of its last event (`seq`). A commit is accepted only if all three
//! are what its worker believes and the node's lease has not expired by the database's clock. Any node that sees an
//! expired lease deletes it and releases everything that node held; it can only return under another number.
//!
//! **One statement, one transaction.** Each commit is one call of a database function: no transaction is ever open
//! while this process computes or waits, so a process that stops in the middle holds no lock. What needs the machine
//! (the verdict on a submitted item) is decided on the state that was read; if that state has changed, the commit is
//! refused and decided again. A statement whose answer is lost is not sent again: its outcome is found by reading.
//!
//! **Commits are batched.** Plain commits, those that change nothing beside their own run and its thread, wait in a
//! queue while the database is busy with others, and are then sent in one statement (`batch_commit`). No commit waits
//! for a batch to fill, one sync and one round trip serve all, and each gets its own answer. A commit that turns out
//! not to be plain is sent by itself. Releasing runs (`release`) and looking up ids (`taken_calls`) work the same way.
//!
//! **Plans are made once.** Every session keeps generic plans that use only indexes (`connection`), and code within the
//! database that reads a table is PL/pgSQL, which keeps its plans too: planning took longer than most statements.
//!
//! **Locks.** `READ COMMITTED`, which every session requests, and row locks are enough, because everything that a
//! commit depends on is locked before it is read: the run, which guards its inbox, its suspensions and its decisions,
//! and the thread, which guards its messages, its calls and its run queue. The order is always the same: first the one
//! thread, then the runs by ascending number; only a claim, a take-over and a batch lock what is free and skip the
//! rest. So there are no deadlocks. Each function locks in one statement and reads in the next: a statement that waited
//! for a lock would continue with the rows it had seen before.
//!
//! **Notifications.** Commits do not notify: a notification within a transaction would serialize all commits. One
//! connection sends notifications to other nodes after the commit, all pending ones at once, and another connection
//! receives them. A notification is a hint; the rows are the truth. Polling three small indexes once a second finds
//! what was not delivered.

mod approvals;
mod audit;
mod batch_commit;
mod batch_queue;
mod binding;
mod boot_instant;
mod chain;
mod claim;
mod clock;
mod cluster;
mod commit;
mod connection;
mod delta_codec;
pub mod doctor;
mod errors;
mod grants;
mod heartbeat;
mod held_calls;
mod keys;
mod lease;
mod listen;
mod listen_probe;
mod messages;
mod migrate;
mod notify;
mod nul_escape;
mod release;
mod restored;
mod run_heads;
mod servers;
mod snapshot;
mod store;
mod stored_run;
mod taken_calls;
mod thread;
mod tls;
mod undecoded;
pub mod upkeep;
mod views;
mod watched_logs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::metrics::Histogram;
use engine::store::{StoreMetrics, Tenant};
use machine::id::{RunId, ThreadId};
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio_postgres::Row;

use batch_commit::BatchQueues;
use claim::PostgresTenantTurn;
use clock::DatabaseClock;
pub use clock::PostgresClockFn;
use connection::{Address, Connections, Parameters, StatementKind};
use errors::PostgresError;
pub use errors::PostgresOpenError;
use lease::PostgresLeases;
use notify::{IncomingNotices, OutgoingNotices};
use watched_logs::WatchedLogs;

/// How a store is opened. The defaults suit a server.
#[derive(Clone)]
pub struct PostgresSettings {
    /// The schema of the tables. It is created if it does not exist.
    pub schema: String,
    /// Stored with the lease of this node, for an operator who inspects the table.
    pub node_name: String,
    /// In addition, this node has two connections of its own.
    pub connection_count_max: usize,
    /// How long a caller waits for a connection.
    pub connection_wait_max: Duration,
    /// How long the database may work on one statement.
    pub statement_timeout: Duration,
    /// How long to wait for an answer, network time included.
    pub answer_timeout: Duration,
    /// How long a node that stops renewing keeps what it holds.
    pub lease: Duration,
    pub renew_every: Duration,
    /// How often to poll for lost notifications.
    pub poll_every: Duration,
    /// Replaces the database's clock, so that a test can move the time.
    pub clock: Option<PostgresClockFn>,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            schema: "holdpoint".into(),
            node_name: format!("process {}", std::process::id()),
            connection_count_max: 16,
            connection_wait_max: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(15),
            lease: Duration::from_secs(10),
            renew_every: Duration::from_secs(3),
            poll_every: Duration::from_secs(1),
            clock: None,
        }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("schema", &self.schema)
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

/// One node of a store. Dropping it is like a crash: other nodes take over its runs when its lease has expired. To
/// release them at once, see [`release_all`](engine::store::ClusterStore::release_all).
pub struct PostgresStore {
    shared: Arc<PostgresShared>,
    tasks: [AbortHandle; 2],
}

struct PostgresShared {
    connections: Connections,
    batch_queues: BatchQueues,
    leases: PostgresLeases,
    /// Held while this node joins, so that it joins only once.
    joining: Mutex<()>,
    turn: PostgresTenantTurn,
    incoming: IncomingNotices,
    outgoing: OutgoingNotices,
    watched_runs: WatchedLogs<RunId>,
    watched_threads: WatchedLogs<(Tenant, ThreadId)>,
    /// Other nodes may exist and watch what is committed here.
    has_peers: AtomicBool,
    /// Makes the heartbeat poll at once.
    poll_now: Notify,
    channel: String,
    clock: DatabaseClock,
    counters: PostgresCounters,
    settings: PostgresSettings,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("node", &self.shared.leases.node()).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, creates the tables if there are none, and migrates them to this software's version.
    pub async fn open(address: &str) -> Result<Self, PostgresOpenError> {
        Self::open_with(address, PostgresSettings::default()).await
    }

    pub async fn open_with(address: &str, settings: PostgresSettings) -> Result<Self, PostgresOpenError> {
        let address = Address::new(address, &settings)?;
        let opening = migrate::migrate(&address, &settings.schema, settings.answer_timeout).await?;
        let shared = Arc::new(PostgresShared {
            connections: Connections::new(address.clone(), &settings)?,
            batch_queues: BatchQueues::default(),
            leases: PostgresLeases::new(),
            joining: Mutex::default(),
            turn: PostgresTenantTurn::default(),
            incoming: IncomingNotices::default(),
            outgoing: OutgoingNotices::default(),
            watched_runs: WatchedLogs::default(),
            watched_threads: WatchedLogs::default(),
            has_peers: AtomicBool::new(true),
            poll_now: Notify::new(),
            channel: format!("holdpoint_{}", settings.schema),
            clock: DatabaseClock::new(settings.clock.clone()),
            counters: PostgresCounters::default(),
            settings,
        });
        let rows = shared.connections.read("SELECT now_ms($1)", &[&shared.clock.override_ms()]).await?;
        if let Some(row) = rows.first() {
            shared.clock.update(row.try_get(0)?);
        }
        let PostgresSettings { schema, answer_timeout, .. } = &shared.settings;
        opening.verify_delivery(&shared.connections, schema, *answer_timeout).await?;
        let heartbeat = tokio::spawn(heartbeat::run(shared.clone(), address.clone()));
        let listener = tokio::spawn(listen::listen(shared.clone(), address));
        Ok(Self { shared, tasks: [heartbeat.abort_handle(), listener.abort_handle()] })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl PostgresShared {
    /// A statement that writes but is not a commit of a run.
    async fn change(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, PostgresError> {
        let rows = self.connections.query(StatementKind::Write, sql, parameters).await?;
        self.counters.count_sync(0);
        Ok(rows)
    }

    fn counts(&self) -> StoreMetrics {
        let (counters, write_metrics) = (&self.counters, &self.connections.write_metrics);
        StoreMetrics {
            commits: counters.commits.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            batches: counters.batches.snapshot(),
            sync_us: write_metrics.sync_us.snapshot(),
            failures: write_metrics.failures.snapshot(),
        }
    }
}

#[derive(Default)]
struct PostgresCounters {
    commits: AtomicU64,
    syncs: AtomicU64,
    bytes: AtomicU64,
    batches: Histogram,
}

impl PostgresCounters {
    fn count_commit(&self, bytes: u64) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The commits of one batch share one sync.
    fn count_sync(&self, commits: u64) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if commits > 0 {
            self.batches.record(commits);
        }
    }
}
