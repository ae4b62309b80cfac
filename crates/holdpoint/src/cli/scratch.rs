//! A temporary folder: only its owner can access it, and it is removed after use.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use super::problem::{Exit, Problem};

pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(purpose: &str) -> Result<Self, Problem> {
        // `RandomState` gets random keys from the operating system, so the name cannot be guessed.
        let number = RandomState::new().hash_one(std::process::id());
        let folder = std::env::temp_dir().join(format!("holdpoint-{purpose}-{number:016x}"));
        match make(&folder) {
            Ok(()) => Ok(Self(folder)),
            Err(why) => Err(Problem::new(
                "NO_FOLDER",
                format!("{} cannot be made: {why}", folder.display()),
                "Let TMPDIR name a folder that can be written to.",
                Exit::Other,
            )),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Fails if the folder exists: another process or user has created it.
fn make(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
