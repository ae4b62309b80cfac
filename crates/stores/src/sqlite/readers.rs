//! Connections that only read. A read sees everything that was committed before it began.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use super::file::StoreFile;

/// Point reads take microseconds, so a few connections serve many threads.
pub(super) const POINT_READER_COUNT: usize = 4;

pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
}

impl Readers {
    pub(super) fn open(file: &StoreFile, count: usize) -> rusqlite::Result<Self> {
        let idle = (0..count).map(|_| file.reader()).collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        let connection = self.take();
        // The connection is returned even after a panic: unwinding resets its statements.
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&connection)));
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.returned.notify_one();
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn take(&self) -> Connection {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = idle.pop() {
                return connection;
            }
            idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
