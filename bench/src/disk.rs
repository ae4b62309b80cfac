//! The bare disk: how long one synced commit takes with SQLite only.

use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;

use crate::bytes_on_disk::Folder;
use crate::failure::Failure;
use crate::pace::milliseconds;

/// A separate file with the store's settings and nothing else in it.
pub(crate) struct BareDisk {
    connection: Connection,
    body: Vec<u8>,
    /// Removed after the file is closed.
    _folder: Folder,
}

impl BareDisk {
    /// Each append has `byte_count` bytes.
    pub(crate) fn within(folder: &Path, byte_count: usize) -> Result<Self, Failure> {
        let folder = Folder::within(folder)?;
        let connection = Connection::open(folder.file("bare.db"))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        connection
            .execute_batch("CREATE TABLE appends (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")?;
        let disk = Self { connection, body: vec![b'x'; byte_count], _folder: folder };
        // The first commit creates the log and does not count.
        disk.commit(1)?;
        Ok(disk)
    }

    /// Milliseconds until `append_count` appends are synced, in one transaction.
    pub(crate) fn commit(&self, append_count: usize) -> Result<f64, Failure> {
        let begin = Instant::now();
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..append_count {
            let mut insert = self.connection.prepare_cached("INSERT INTO appends (body) VALUES (?1)")?;
            insert.execute([&self.body])?;
        }
        self.connection.execute_batch("COMMIT")?;
        Ok(milliseconds(begin.elapsed()))
    }
}

/// Milliseconds for each of `batch_count` synced transactions of `append_count` rows with `byte_count` bytes.
pub(crate) fn synced_batches(
    folder: &Path,
    append_count: usize,
    byte_count: usize,
    batch_count: usize,
) -> Result<Vec<f64>, Failure> {
    let disk = BareDisk::within(folder, byte_count)?;
    (0..batch_count).map(|_| disk.commit(append_count)).collect()
}
