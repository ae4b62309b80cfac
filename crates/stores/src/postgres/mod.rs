//! A store in PostgreSQL, for many nodes: one database, any number of processes, each of which may go at any time.
//!
//! **Who may write.** A node has a lease, a row that it renews; a run has a fence: the node that holds it, the number
//! of that holding (`epoch`), and the number of its last event (`seq`). A commit counts only if all three are as its
//! worker believes and the node's lease has not run out by the database's clock. A lease that ran out is deleted by
//! whoever sees it, and with it all that the node held; the node cannot come back but under another number.
//!
//! **One statement, one transaction.** Each commit is a function in the database, called once: no transaction is ever
//! open while this process thinks or waits, so a process that stops in the middle holds no lock. What needs the machine
//! (the verdict on a submitted item) is judged on what was read, and the commit is refused and judged again if that has
//! changed. A statement whose answer is lost is not sent again: what it came to is found out by reading.
//!
//! **What comes together goes together.** Plain commits, those that change nothing beside their own run and its thread,
//! stand in a line while the database is busy with others, and then go in one statement over all of them (`batch_commit`):
//! nobody waits for company, one sync and one round trip serve all, and each has an answer of its own. What turns out not
//! to be plain is sent alone. Runs that are let go (`release`) and ids that are asked for (`taken_calls`) do the same.
//!
//! **Plans are made once.** Every session keeps generic plans that use indexes alone (`connection`), and what looks at a
//! table within the database is PL/pgSQL, which keeps its plans too: planning took longer than most statements.
//!
//! **Locks.** `READ COMMITTED`, which every session asks for, and row locks are enough, because everything that a commit
//! decides on is locked before it is read: the run, which guards its inbox, its suspensions and its decisions, and the
//! thread, which guards its messages, its calls and its line. Always in this order: first the one thread, then the runs by
//! their rising numbers; only a claim, a take-over and what goes together take what is free and pass over the rest. So
//! nobody waits for somebody who waits for them. Each function locks in one statement and reads in the next: a statement
//! that waited for a lock would go on with what it had seen before.
//!
//! **Who is told.** Commits notify nobody: a notification within a transaction would make all commits wait in one line.
//! What concerns other nodes is sent after the commit by one connection, all that has come together at once, and heard
//! by one other. It is a hint; the rows are the truth, and a look at three small indexes once a second finds what was
//! not heard.

mod approvals;
mod batch_commit;
mod batch_queue;
mod binding;
mod boot_instant;
mod claim;
mod clock;
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
mod watched_runs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::metrics::Histogram;
use engine::store::StoreMetrics;
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
use watched_runs::WatchedRuns;

/// How a store is opened. The default is what a server wants.
#[derive(Clone)]
pub struct PostgresSettings {
    /// Where the tables are. It is created if it is not there.
    pub schema: String,
    /// Beside the lease of this node, for a person who looks.
    pub node_name: String,
    /// Beside them this node has two connections of its own.
    pub connection_count_max: usize,
    /// How long anybody waits for a connection.
    pub connection_wait_max: Duration,
    /// How long the database may work on one statement.
    pub statement_timeout: Duration,
    /// How long an answer is waited for, the way included.
    pub answer_timeout: Duration,
    /// How long a node that is not heard of keeps what it holds.
    pub lease: Duration,
    pub renew_every: Duration,
    /// How often it is looked for what a notification may have failed to say.
    pub poll_every: Duration,
    /// In place of the database's own clock, so that a test can move it.
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

/// One node of a store. Dropping it is a crash: what it holds is taken over when its lease has run out. To leave at
/// once, see [`release_all`](engine::store::Store::release_all).
pub struct PostgresStore {
    shared: Arc<PostgresShared>,
    tasks: [AbortHandle; 2],
}

struct PostgresShared {
    connections: Connections,
    batch_queues: BatchQueues,
    leases: PostgresLeases,
    /// Held while this node joins, so that it joins once.
    joining: Mutex<()>,
    turn: PostgresTenantTurn,
    incoming: IncomingNotices,
    outgoing: OutgoingNotices,
    watched_runs: WatchedRuns,
    /// Other nodes may be there, and watch what is committed here.
    has_peers: AtomicBool,
    /// Rings when the pulse has to look at once.
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
    /// Connects, creates the tables if there are none, and brings them up to the version of this software.
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
            watched_runs: WatchedRuns::default(),
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
    /// A statement that changes something and is no commit of a run.
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

    /// Commits that go together share one.
    fn count_sync(&self, commits: u64) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if commits > 0 {
            self.batches.record(commits);
        }
    }
}
