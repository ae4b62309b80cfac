//! The database file: its lock, its schema version, and the connections to it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use super::errors::SqliteOpenError;

/// Applied in order. A file's version is the number of migrations applied to it. Never edit a released migration.
pub(super) const MIGRATIONS: [&str; 10] = [
    include_str!("migrations/0001_runs.sql"),
    include_str!("migrations/0002_version.sql"),
    include_str!("migrations/0003_grants.sql"),
    include_str!("migrations/0004_passed_over.sql"),
    include_str!("migrations/0005_grants_in_force.sql"),
    include_str!("migrations/0006_previous_callback_key.sql"),
    include_str!("migrations/0007_chain.sql"),
    include_str!("migrations/0008_runs_by_parent.sql"),
    include_str!("migrations/0009_audit.sql"),
    include_str!("migrations/0010_audit_sinks_and_backups.sql"),
];
/// Written to the file header by the first migration. It distinguishes a store from the files of other programs.
pub(super) const APPLICATION_ID: i32 = 0x686f_6c64;
/// A connection waits for the file only while another one recovers the log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);
const LOCK_RETRY_EVERY: Duration = Duration::from_millis(5);
/// After a failed sync, how long to wait for another process to stop reading the file.
const READER_TIMEOUT: Duration = Duration::from_secs(1);
/// The writer returns to the same pages of every index.
const WRITER_CACHE_KIB: i32 = 16 * 1_024;
/// A long read lets the log grow. When the log restarts, it is truncated to this size.
const LOG_BYTES_MAX: i64 = 64 * 1_024 * 1_024;
/// Larger than the number of statements.
const STATEMENT_COUNT_MAX: usize = 128;

/// Held while checking whether a file exists and creating it, so that no other thread of this process does the same.
static CREATING: Mutex<()> = Mutex::new(());

/// A file that only this store uses for as long as this value lives.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    /// True if this process created the lock file.
    created_lock: bool,
    /// The operating system releases the lock when the process ends, however it ends. The lock file is empty unless
    /// the process ended because a sync failed.
    lock: Arc<File>,
}

/// Records in the lock file that a sync has failed, for the next process that opens the store.
#[derive(Clone, Debug)]
pub(super) struct FailureMark(Weak<File>);

impl FailureMark {
    /// Best effort, because the disk is failing.
    pub(super) fn write(&self) {
        if let Some(lock) = self.0.upgrade()
            && let Err(error) = (&*lock).write_all(b"a sync failed")
        {
            tracing::error!(%error, "cannot record in the lock file that a sync failed, so the next process that opens the store will not know");
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
        // Two names of one file must not get two locks, and a link to a missing file is such a name. So the file is
        // created first. Only SQLite opens a file that exists: closing it here would drop the locks that SQLite holds
        // on it for another store of this process or for an inspection, and others would take its log for abandoned.
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

    /// The writing connection. Migrates the file to this software's version.
    pub(super) fn writer(&self) -> Result<Connection, SqliteOpenError> {
        let mut connection = self.connection().map_err(|error| self.failed(error))?;
        // Checked before any read: a read creates a log beside the file.
        if connection.is_readonly(MAIN_DB)? {
            let why = std::io::Error::new(ErrorKind::PermissionDenied, "it is a readonly database");
            return Err(SqliteOpenError::Unwritable { path: self.path.clone(), why });
        }
        // The first read of the file also reports whether a log can be kept beside it.
        if is_foreign_database(&connection).map_err(|error| self.failed(error))? {
            self.remove_lock_file();
            return Err(SqliteOpenError::NotAStore { path: self.path.clone() });
        }
        migrate(&mut connection, |connection| self.restart_wal(connection))?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        // Set on the writer, because the connection that restarts the log truncates it.
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_MAX, |_| Ok(()))?;
        Ok(connection)
    }

    /// Leaves nothing beside a file that is not a store.
    fn remove_lock_file(&self) {
        if self.created_lock
            && let Err(error) = std::fs::remove_file(lock_path(&self.path))
        {
            tracing::warn!(%error, "a lock file was left beside a file that is not a store");
        }
    }

    /// Writes again what a failed sync left only in memory: nothing acknowledged from now on may follow a gap in the
    /// log. A process that reads the file prevents the restart, which is harmless unless a sync has failed.
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
        // Otherwise SQLite recompiles a cached statement whenever a bound value could affect the plan.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_COUNT_MAX);
        connection.pragma_update(None, "foreign_keys", true)?;
        // Savepoints keep the pages that they may have to restore in the temporary store.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }
}

/// Files created with these options are accessible to their owner only. SQLite gives the log the file's permissions.
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

/// The file's permissions if users other than its owner have any. They may have been granted on purpose.
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

/// A child process that another thread is starting shares this process's locks until it has called exec. So an attempt
/// to close and reopen a store meanwhile has to retry for a moment.
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

/// A file without tables belongs to no program yet: a process that died while creating a store leaves one.
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
        // Takes effect only before the first table is created.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    // This changes the file, so it happens only after the version check.
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
