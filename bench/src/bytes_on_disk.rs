//! A separate folder for each measurement, removed afterwards, and the number of bytes in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

static FOLDER_COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn within(parent: &Path) -> io::Result<Self> {
        let number = FOLDER_COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("bench-{}-{number}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn byte_count(&self) -> io::Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(&self.path)? {
            sum += entry?.metadata()?.len();
        }
        Ok(sum)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("bench: {} was not removed: {error}", self.path.display());
        }
    }
}
