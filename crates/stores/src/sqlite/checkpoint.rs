//! Checkpoints: copies the log into the file on a connection of its own, so that the writer does not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::errors::leaves_file_unchanged;
use super::writer::FatalFlag;

/// 4 MiB of pages: enough to be worth the syncs of a pass, and a recovery reads only a few of these.
const PASS_PAGE_COUNT: u32 = 1_024;
/// 64 MiB of pages. Under constant writes the log restarts only if a pass reaches its end, so beyond this size the
/// writer copies the rest itself, between two batches.
const LOG_PAGE_COUNT_MAX: u32 = 16 * PASS_PAGE_COUNT;

/// How far the log has grown since the last pass.
#[derive(Default)]
pub(super) struct WalGrowth {
    pages: Arc<AtomicU32>,
    at_last_pass: u32,
}

impl WalGrowth {
    /// Tracks every commit on this connection.
    pub(super) fn track(connection: &mut Connection) -> rusqlite::Result<Self> {
        let growth = Self::default();
        let pages = growth.pages.clone();
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            pages.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(growth)
    }

    /// Whether a pass is due; if so, the next one is counted from here.
    pub(super) fn is_due(&mut self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.at_last_pass {
            self.at_last_pass = 0;
        }
        let due = pages - self.at_last_pass >= PASS_PAGE_COUNT;
        if due {
            self.at_last_pass = pages;
        }
        due
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= LOG_PAGE_COUNT_MAX
    }
}

/// Copies as much as it can without blocking readers or the writer.
pub(super) fn checkpoint_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// The thread ends when the sender is dropped.
pub(super) fn thread(
    connection: Connection,
    fatal: FatalFlag,
) -> std::io::Result<(SyncSender<()>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        while receiver.recv().is_ok() {
            // A failed sync may have lost pages that the next sync reports as written.
            if let Err(error) = checkpoint_once(&connection)
                && !leaves_file_unchanged(&error)
            {
                fatal.set(&format!("a checkpoint failed: {error}"));
            }
        }
    };
    let thread = std::thread::Builder::new().name("sqlite-checkpoints".into()).spawn(work)?;
    Ok((sender, thread))
}
