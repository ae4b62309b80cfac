//! Copies the file as of one moment, while writes continue.
//!
//! The copy has everything that was acknowledged before it began. The log of the file cannot restart until the copy is
//! done, so it grows by everything written meanwhile.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use engine::store::StoreFailure;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::errors::to_failure;
use super::file::owner_only;
use super::inspect::{InspectError, inspect};
use super::keys::{REMOVE_CALLBACK_KEY, REMOVE_PREVIOUS_CALLBACK_KEY};
use crate::columns::to_i64;

/// 1 MiB of pages: reports progress often enough, and each step is short.
const STEP_PAGE_COUNT: i32 = 256;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    pub pages_done: u64,
    pub pages_total: u64,
}

/// A finished copy, synced and under its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    pub path: PathBuf,
    pub bytes: u64,
}

#[derive(Debug)]
pub enum BackupError {
    /// Existing files are never overwritten.
    Exists {
        path: PathBuf,
    },
    Inspect(InspectError),
    /// The copy cannot be written.
    Copy {
        path: PathBuf,
        why: StoreFailure,
    },
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { path } => write!(f, "{} exists already", path.display()),
            Self::Inspect(why) => why.fmt(f),
            Self::Copy { path, why } => write!(f, "the copy {} cannot be written: {why}", path.display()),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<InspectError> for BackupError {
    fn from(why: InspectError) -> Self {
        Self::Inspect(why)
    }
}

/// Copies the store in `from` to a new file `to`. The file gets this name only once all of it is on disk.
pub fn backup(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut progress: impl FnMut(BackupProgress),
) -> Result<BackedUp, BackupError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists { path: to.into() });
    }
    let copy = inspect(from, |source| {
        let copy = PartialCopy::create(to)?;
        copy_pages(source, &copy, &mut progress)?;
        Ok::<_, BackupError>(copy)
    })?;
    copy.name()
}

/// An unfinished copy. Dropping it removes it.
struct PartialCopy {
    path: PathBuf,
    file: File,
    to: PathBuf,
}

impl PartialCopy {
    fn create(to: &Path) -> Result<Self, BackupError> {
        // In containers every process may have the same id, and one process may make two copies at once.
        let chance = RandomState::new().hash_one(std::process::id());
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".partial-{chance:016x}"));
        let path = PathBuf::from(name);
        // If the file already exists, it belongs to another process and is not removed.
        let file = owner_only().create_new(true).write(true).open(&path);
        let file = file.map_err(|why| failed(to, &why))?;
        Ok(Self { path, file, to: to.into() })
    }

    fn failed(&self, why: &io::Error) -> BackupError {
        failed(&self.to, why)
    }

    /// Syncs the bytes before the file gets its name, and the name before the caller gets the result.
    fn name(self) -> Result<BackedUp, BackupError> {
        let bytes = self.sync().map_err(|why| self.failed(&why))?;
        // A rename would replace a file that was created meanwhile under this name.
        match fs::hard_link(&self.path, &self.to) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists { path: self.to.clone() });
            }
            // Not every file system supports hard links.
            Err(_) => fs::rename(&self.path, &self.to).map_err(|why| self.failed(&why))?,
        }
        let folder = self.to.parent().filter(|folder| !folder.as_os_str().is_empty());
        sync_folder(folder.unwrap_or(Path::new("."))).map_err(|why| self.failed(&why))?;
        Ok(BackedUp { path: self.to.clone(), bytes })
    }

    fn sync(&self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.file.metadata()?.len())
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        // Fails harmlessly if the file was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(to: &Path, why: &io::Error) -> BackupError {
    let text = why.to_string();
    let full = matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let why = if full { StoreFailure::Full(text) } else { StoreFailure::Unavailable(text) };
    BackupError::Copy { path: to.into(), why }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

fn copy_pages(
    source: &Connection,
    partial: &PartialCopy,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<(), BackupError> {
    let failed =
        |error: &rusqlite::Error| BackupError::Copy { path: partial.to.clone(), why: to_failure(error) };
    // Holds one snapshot of the source during the whole copy. Otherwise every commit by another connection would
    // restart the copy.
    let snapshot = source.unchecked_transaction().map_err(InspectError::from)?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(InspectError::from)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(&partial.path, flags).map_err(|error| failed(&error))?;
    // An unfinished copy is deleted, and a finished one is synced before it gets its name.
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        .map_err(|error| failed(&error))?;
    let backup = Backup::new(source, &mut copy).map_err(|error| failed(&error))?;
    loop {
        let step = backup.step(STEP_PAGE_COUNT).map_err(|error| failed(&error))?;
        let now = backup.progress();
        let pages = |count: i32| u64::try_from(count).unwrap_or(0);
        let (left, pages_total) = (pages(now.remaining), pages(now.pagecount));
        progress(BackupProgress { pages_done: pages_total.saturating_sub(left), pages_total });
        if step == StepResult::Done {
            break;
        }
        if step != StepResult::More {
            let why = StoreFailure::Unavailable(format!("a step of the copy is {step:?}"));
            return Err(BackupError::Copy { path: partial.to.clone(), why });
        }
    }
    drop(backup);
    drop(snapshot);
    // A backup must not contain the callback keys. The copy needs no journal as long as no other process opens it.
    for sql in ["PRAGMA locking_mode = EXCLUSIVE;", REMOVE_CALLBACK_KEY, REMOVE_PREVIOUS_CALLBACK_KEY] {
        copy.execute_batch(sql).map_err(|error| failed(&error))?;
    }
    let marks = "INSERT INTO backup_mark (only, taken_at) VALUES (1, ?1) \
        ON CONFLICT (only) DO UPDATE SET taken_at = excluded.taken_at";
    copy.execute(marks, [to_i64(system_time_ms())]).map_err(|error| failed(&error))?;
    copy.close().map_err(|(_, error)| failed(&error))
}

fn system_time_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
