//! The file: its lock, its version, and the connections to it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use super::errors::SqliteOpenError;

/// In order; the version of a file is how many of them it has seen. A migration that was released is never edited.
pub(super) const MIGRATIONS: [&str; 6] = [
    include_str!("migrations/0001_runs.sql"),
    include_str!("migrations/0002_version.sql"),
    include_str!("migrations/0003_grants.sql"),
    include_str!("migrations/0004_passed_over.sql"),
    include_str!("migrations/0005_grants_in_force.sql"),
    include_str!("migrations/0006_previous_callback_key.sql"),
];
/// What the first migration writes into the head of a file: by this a store is told from the files of other programs.
pub(super) const APPLICATION_ID: i32 = 0x686f_6c64;
/// Only a recovery of the log makes anybody wait for the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);
const LOCK_RETRY_EVERY: Duration = Duration::from_millis(5);
/// After a failed sync, how long somebody who reads the file is waited for.
const READER_TIMEOUT: Duration = Duration::from_secs(1);
/// The writer comes back to the same pages of every index.
const WRITER_CACHE_KIB: i32 = 16 * 1_024;
/// A log that has grown while somebody read the file for long is cut to this when it begins anew.
const LOG_BYTES_MAX: i64 = 64 * 1_024 * 1_024;
/// More than there are statements.
const STATEMENT_COUNT_MAX: usize = 128;

/// Whoever looks whether a file exists and makes it does so alone in this process.
static CREATING: Mutex<()> = Mutex::new(());

/// A file that belongs to this store alone, for as long as this value lives.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    /// Whether there was no lock file before.
    created_lock: bool,
    /// The system lets go of it when the process ends, however it ends. It says something only where the process
    /// ended because a sync had failed.
    lock: Arc<File>,
}

/// Leaves word that a sync has failed, for whoever opens the file next.
#[derive(Clone, Debug)]
pub(super) struct FailureMark(Weak<File>);

impl FailureMark {
    /// As far as it goes: the disk is in trouble.
    pub(super) fn write(&self) {
        if let Some(lock) = self.0.upgrade()
            && let Err(error) = (&*lock).write_all(b"a sync failed")
        {
            tracing::error!(%error, "whoever opens the store next cannot be told that a sync failed");
        }
    }
}

impl StoreFile {
    pub(super) fn lock(path: &Path) -> Result<Self, SqliteOpenError> {
        let failed = |why: std::io::Error| match path.parent() {
            Some(folder) if why.kind() == ErrorKind::NotFound => {
                SqliteOpenError::NoFolder { folder: folder.to_owned() }
            }
            Some(_) | None => SqliteOpenError::Unwritable { path: path.to_owned(), why },
        };
        // Two names of one file must not have two locks, and a link to a file that is not there yet is one of them:
        // first of all the file exists. One that does is opened by nobody but SQLite. To close it would take away the
        // locks that SQLite has on it for another store of this process, or for somebody who looks into it, and others
        // would take its log for abandoned.
        let creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            owner_only().create(true).append(true).open(path).map_err(failed)?;
        }
        drop(creating);
        let path = path.canonicalize().map_err(failed)?;
        if let Some(mode) = permissions_of_others(&path) {
            tracing::warn!(
                path = %path.display(),
                mode = format!("{mode:o}"),
                "other users of this machine may read or write the store, and with it every conversation and the key of \
                 all callbacks; take that away from them: chmod 600, for the file and what lies beside it"
            );
        }
        let lock_path = lock_path(&path);
        let created_lock = !lock_path.exists();
        let lock = owner_only().create(true).truncate(false).write(true).open(&lock_path);
        match lock.map_err(TryLockError::Error).and_then(|lock| acquire_lock(&lock).map(|()| lock)) {
            Ok(lock) => Ok(Self { path, created_lock, lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => Err(SqliteOpenError::InUse { lock: lock_path }),
            Err(TryLockError::Error(why)) => Err(SqliteOpenError::Unwritable { path: lock_path, why }),
        }
    }

    /// The connection that writes. Brings the file up to the version of this software.
    pub(super) fn writer(&self) -> Result<Connection, SqliteOpenError> {
        let mut connection = self.connection().map_err(|error| self.failed(error))?;
        // Before anything is read: whoever reads makes a log beside the file.
        if connection.is_readonly(MAIN_DB)? {
            let why = std::io::Error::new(ErrorKind::PermissionDenied, "it is a readonly database");
            return Err(SqliteOpenError::Unwritable { path: self.path.clone(), why });
        }
        // The first to look into the file is also the first to hear that no log can be kept beside it.
        if is_foreign_database(&connection).map_err(|error| self.failed(error))? {
            self.remove_lock_file();
            return Err(SqliteOpenError::NotAStore { path: self.path.clone() });
        }
        migrate(&mut connection, |connection| self.restart_wal(connection))?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        // Whoever lets the log begin anew cuts it, and that is the writer.
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_MAX, |_| Ok(()))?;
        Ok(connection)
    }

    /// Leaves nothing beside a file that is not ours.
    fn remove_lock_file(&self) {
        if self.created_lock
            && let Err(error) = std::fs::remove_file(lock_path(&self.path))
        {
            tracing::warn!(%error, "a lock file was left beside a file that is not a store");
        }
    }

    /// What a failed sync left in memory alone is written again: nothing that is acknowledged from here on may stand
    /// behind a hole. Somebody who reads the file keeps the log as it is; where no sync has failed that does no harm.
    fn restart_wal(&self, connection: &Connection) -> Result<(), SqliteOpenError> {
        let must = self.lock.metadata().is_ok_and(|lock| lock.len() > 0);
        connection.busy_timeout(if must { READER_TIMEOUT } else { Duration::ZERO })?;
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy = connection.query_row(sql, [], |row| row.get(0));
        let busy = match busy {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => true,
            busy => busy?,
        };
        connection.busy_timeout(BUSY_TIMEOUT)?;
        match (must, busy) {
            (true, true) => Err(SqliteOpenError::BeingRead { path: self.path.clone() }),
            (true, false) => self
                .lock
                .set_len(0)
                .map_err(|why| SqliteOpenError::Unwritable { path: lock_path(&self.path), why }),
            (false, _) => Ok(()),
        }
    }

    pub(super) fn failure_mark(&self) -> FailureMark {
        FailureMark(Arc::downgrade(&self.lock))
    }

    fn failed(&self, error: rusqlite::Error) -> SqliteOpenError {
        match error.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => SqliteOpenError::Unwritable {
                path: self.path.clone(),
                why: std::io::Error::new(ErrorKind::PermissionDenied, error),
            },
            Some(ErrorCode::NotADatabase) => {
                self.remove_lock_file();
                SqliteOpenError::NotSqlite { path: self.path.clone() }
            }
            Some(_) | None => error.into(),
        }
    }

    pub(super) fn checkpointer(&self) -> rusqlite::Result<Connection> {
        self.connection()
    }

    pub(super) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = self.connection()?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    fn connection(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Without it SQLite compiles a cached statement again whenever a value is bound that a plan could depend on.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_COUNT_MAX);
        connection.pragma_update(None, "foreign_keys", true)?;
        // Savepoints keep the pages that they may have to restore here.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }
}

/// What is made so belongs to its owner alone. SQLite gives the log the rights of the file.
#[cfg(unix)]
pub(super) fn owner_only() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
pub(super) fn owner_only() -> OpenOptions {
    File::options()
}

/// The rights of a file, where anybody but its owner has some. Whoever gave them may have meant it.
#[cfg(unix)]
fn permissions_of_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = path.metadata().ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn permissions_of_others(_path: &Path) -> Option<u32> {
    None
}

/// A process that another thread is just starting shares every lock of this one until it has begun: whoever closes a
/// store and opens it again meanwhile has to be patient for a moment.
fn acquire_lock(lock: &File) -> Result<(), TryLockError> {
    let begin = Instant::now();
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_TIMEOUT => {
                std::thread::park_timeout(LOCK_RETRY_EVERY)
            }
            taken => return taken,
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// A file without tables is not yet anybody's: a process that was lost while it made a store leaves one behind.
fn is_foreign_database(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let application = number("application_id")?;
    let made = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
    let is_empty = application == 0
        && number("user_version")? == 0
        && !connection.query_row(made, [], |row| row.get::<_, bool>(0))?;
    Ok(application != APPLICATION_ID && !is_empty)
}

fn migrate(
    connection: &mut Connection,
    restart_wal: impl FnOnce(&Connection) -> Result<(), SqliteOpenError>,
) -> Result<(), SqliteOpenError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(SqliteOpenError::Newer { found, known });
    }
    if found == 0 {
        // Counts only before the first table.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    // Changes the file, so only after its version was found to be ours.
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(SqliteOpenError::NoWriteAheadLog { mode });
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    restart_wal(connection)?;
    for (migration, version) in MIGRATIONS.iter().zip(1_u32..).skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
