//! A store in one SQLite file: one writer with group commit, a few readers, one process.
//!
//! An acknowledged write has been synced. Commands that arrive during a sync share the next one, so there is no timer
//! to wait for. If a commit or sync fails and leaves the contents of the file unknown, the process ends: reopening the
//! file is the only way to find out what it holds.

mod append;
mod approvals;
pub mod audit;
pub mod backup;
mod chain;
mod checkpoint;
mod claim;
mod create;
pub mod doctor;
mod errors;
mod file;
mod grants;
pub mod held_calls;
mod inboxes;
mod inspect;
mod keys;
mod lease;
mod lease_handover;
pub mod log;
mod messages;
mod readers;
mod restored;
pub mod retention;
mod revisions;
mod run_heads;
pub mod size;
mod slow_reads;
mod store;
mod stored_run;
mod thread;
mod undecoded;
mod views;
mod write_tx;
mod writer;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::store::{StoreError, StoreFailure};
use machine::Timestamp;
use rusqlite::Connection;

use checkpoint::WalGrowth;
use claim::SqliteTenantTurn;
use errors::SqliteError;
pub use errors::SqliteOpenError;
use file::StoreFile;
pub use inspect::InspectError;
use lease::SqliteLeases;
use readers::{POINT_READER_COUNT, Readers};
use slow_reads::{LIST_READER_COUNT, LOG_READER_COUNT, SlowReaders};
use writer::{FatalFlag, SqliteCounters, Writer, WriterHandle};

/// Returns the current time.
pub type SqliteClockFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Called with the reason when the contents of the file have become unknown.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Options for opening a store. The defaults suit a server.
#[derive(Clone, Default)]
pub struct SqliteSettings {
    /// The system clock if none.
    pub clock: Option<SqliteClockFn>,
    /// If none, the process ends. A store that stays open after this refuses every further write.
    pub on_fatal: Option<OnFatal>,
    /// Runs everything on the caller's thread, so that a simulation is repeatable.
    pub inline: bool,
}

impl fmt::Debug for SqliteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSettings").field("inline", &self.inline).finish_non_exhaustive()
    }
}

/// One file that only this process uses. Dropping the store writes what was sent and closes the file.
pub struct SqliteStore {
    writer_handle: WriterHandle,
    checkpoints: Option<JoinHandle<()>>,
    shared: Arc<SqliteShared>,
    inline: bool,
}

/// Everything that reads need, including those on other threads.
struct SqliteShared {
    points: Readers,
    lists: SlowReaders,
    logs: SlowReaders,
    leases: Arc<SqliteLeases>,
    turn: SqliteTenantTurn,
    counters: Arc<SqliteCounters>,
    clock: SqliteClockFn,
    /// Dropped last, so that all connections are closed before another store can open the file.
    file: StoreFile,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, creates it if there is none, and migrates it to this software's version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteOpenError> {
        Self::open_with(path, SqliteSettings::default())
    }

    pub fn open_with(path: impl AsRef<Path>, settings: SqliteSettings) -> Result<Self, SqliteOpenError> {
        let SqliteSettings { clock, on_fatal, inline } = settings;
        let clock = clock.unwrap_or_else(|| Arc::new(system_clock));
        let on_fatal = on_fatal.unwrap_or_else(|| Arc::new(exit_process));
        let file = StoreFile::lock(path.as_ref())?;
        let mut connection = file.writer()?;
        let mark = file.failure_mark();
        let (opening, last_arrival) = reclaim_runs(&mut connection, clock())?;
        let wal_growth = WalGrowth::track(&mut connection)?;
        let shared = Arc::new(SqliteShared {
            points: Readers::open(&file, POINT_READER_COUNT)?,
            lists: SlowReaders::open(&file, LIST_READER_COUNT)?,
            logs: SlowReaders::open(&file, LOG_READER_COUNT)?,
            leases: Arc::new(SqliteLeases::new(opening)),
            turn: SqliteTenantTurn::default(),
            counters: Arc::default(),
            clock: clock.clone(),
            file,
        });
        let mut writer = Writer {
            connection,
            leases: shared.leases.clone(),
            clock,
            counters: shared.counters.clone(),
            wal_growth,
            checkpoints: None,
            last_arrival: Cell::new(last_arrival),
            opening: opening.saturating_add(1),
            fatal: FatalFlag::new(mark, on_fatal),
        };
        if inline {
            let writer_handle = WriterHandle::inline(writer);
            return Ok(Self { writer_handle, checkpoints: None, shared, inline });
        }
        let (writer_handle, checkpoints) = start_checkpoints(&mut writer, &shared)
            .and_then(|checkpoints| Ok((WriterHandle::thread(writer)?, checkpoints)))
            .map_err(|why| SqliteOpenError::Trouble(StoreFailure::Unavailable(why.to_string())))?;
        Ok(Self { writer_handle, checkpoints: Some(checkpoints), shared, inline })
    }

    /// Reads a few rows on the caller's thread: that is faster than handing the read to another thread.
    fn read_point<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        self.shared
            .counters
            .count_result(self.shared.points.read(read).map_err(|SqliteError(refused)| refused))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.writer_handle.close();
        if let Some(thread) = self.checkpoints.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

/// Starts the thread that copies the log into the file. The writer gets the channel that triggers it.
fn start_checkpoints(writer: &mut Writer, shared: &SqliteShared) -> std::io::Result<JoinHandle<()>> {
    let connection = shared.file.checkpointer().map_err(std::io::Error::other)?;
    let (sender, thread) = checkpoint::thread(connection, writer.fatal.clone())?;
    writer.checkpoints = Some(sender);
    Ok(thread)
}

/// Makes the runs that the last process worked on claimable again. Returns how often the file was opened before, and
/// the last arrival number.
fn reclaim_runs(connection: &mut Connection, now: Timestamp) -> Result<(u32, i64), SqliteOpenError> {
    let transaction = connection.transaction()?;
    let opening = transaction.query_row("SELECT count FROM openings", [], |row| row.get(0))?;
    transaction.execute("UPDATE openings SET count = count + 1", [])?;
    let last: Option<i64> =
        transaction.query_row("SELECT max(ready_at) FROM runs WHERE ready = 1", [], |row| row.get(0))?;
    let arrival = i64::try_from(now.0.saturating_mul(1_000)).unwrap_or(i64::MAX - 1);
    let arrival = arrival.max(last.unwrap_or(0).saturating_add(1));
    transaction.execute(include_str!("sql/runs_make_ready.sql"), [arrival])?;
    restored::record_restore(&transaction, now)?;
    transaction.commit()?;
    Ok((opening, arrival))
}

fn system_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

fn exit_process(why: &str) {
    tracing::error!(
        why,
        "the contents of the store file are unknown; exiting, so that the next start opens it again"
    );
    std::process::exit(1);
}
