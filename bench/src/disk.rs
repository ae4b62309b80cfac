//! The bare disk: what one synced commit takes when there is nothing but SQLite.

use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;

use crate::bytes_on_disk::Folder;
use crate::failure::Failure;

/// Milliseconds that each of so many synced transactions takes: `append_count` rows of `byte_count` bytes, in a
/// fresh file of this folder, under the settings of the store.
pub(crate) fn synced_batches(
    folder: &Path,
    append_count: usize,
    byte_count: usize,
    batch_count: usize,
) -> Result<Vec<f64>, Failure> {
    let folder = Folder::within(folder)?;
    let connection = Connection::open(folder.file("bare.db"))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    connection.execute_batch("CREATE TABLE appends (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")?;
    let body = vec![b'x'; byte_count];
    let mut times = Vec::new();
    // The first one creates the log and does not count.
    for number in 0..=batch_count {
        let begin = Instant::now();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..append_count {
            connection.prepare_cached("INSERT INTO appends (body) VALUES (?1)")?.execute([&body])?;
        }
        connection.execute_batch("COMMIT")?;
        if number > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1_000.0);
        }
    }
    Ok(times)
}
