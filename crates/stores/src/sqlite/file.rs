//! The file: its lock, its version, and the connections to it.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::trouble::OpenFailed;

/// In order; the version of a file is how many of them it has seen.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_runs.sql")];
/// Only a recovery of the log makes anybody wait for the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The writer comes back to the same pages of every index.
const WRITER_CACHE_KIB: i32 = 16 * 1_024;
/// More than there are statements.
const STATEMENT_COUNT_MAX: usize = 128;

/// A file that belongs to this store alone, for as long as this value lives.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    /// The system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl StoreFile {
    pub(super) fn lock(path: &Path) -> Result<Self, OpenFailed> {
        let failed = |why| OpenFailed::Lock { lock: lock_path(path), why };
        // Two names of one file must not have two locks, and a link to a file that is not there yet is one of them:
        // first of all the file exists.
        File::options().create(true).append(true).open(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        let lock_path = lock_path(&path);
        let lock =
            File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenFailed::InUse { lock: lock_path }),
            Err(TryLockError::Error(why)) => Err(OpenFailed::Lock { lock: lock_path, why }),
        }
    }

    /// The connection that writes. Brings the file up to the version of this software.
    pub(super) fn writer(&self) -> Result<Connection, OpenFailed> {
        let mut connection = self.connection()?;
        // Counts only before the first table.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        migrate(&mut connection)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        Ok(connection)
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

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn migrate(connection: &mut Connection) -> Result<(), OpenFailed> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(OpenFailed::Newer { found, known });
    }
    // Changes the file, so only after its version was found to be ours.
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenFailed::NoLog { mode });
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    // What a failed sync left in memory alone is written again, and the log begins anew: nothing that is acknowledged
    // from here on stands behind a hole.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    for (migration, version) in MIGRATIONS.iter().zip(1_u32..).skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
