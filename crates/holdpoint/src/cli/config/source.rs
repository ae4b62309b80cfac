//! The file being read: its text, its folder, and the faults found so far.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use machine::id::Digest;

use super::fault::{ConfigFaults, Fault};
use super::overlap;
use crate::cli::open_token;

/// Larger files are refused: people write configurations, schemas and scripts by hand.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) struct Source {
    name: String,
    folder: PathBuf,
    text: String,
    faults: RefCell<Vec<Fault>>,
    /// What the file needs from its environment and does not get.
    unset: RefCell<Vec<Fault>>,
    warnings: RefCell<Vec<Fault>>,
    /// The file itself, and every file that it names and that was read.
    files: RefCell<Vec<PathBuf>>,
    /// The folders that tools write to, each with the key that names it.
    written: RefCell<Vec<(Fault, PathBuf)>>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let text = read_text(path)?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let name = path.display().to_string();
        Ok(Self {
            name,
            folder,
            text,
            faults: RefCell::default(),
            unset: RefCell::default(),
            warnings: RefCell::default(),
            files: RefCell::new(vec![path.to_owned()]),
            written: RefCell::default(),
        })
    }

    /// Text that is treated as a file in this folder.
    #[cfg(test)]
    pub(super) fn from_text(folder: &Path, text: String) -> Self {
        Self {
            name: "holdpoint.toml".to_owned(),
            folder: folder.to_owned(),
            text,
            faults: RefCell::default(),
            unset: RefCell::default(),
            warnings: RefCell::default(),
            files: RefCell::new(vec![folder.join("holdpoint.toml")]),
            written: RefCell::default(),
        }
    }

    /// Of the bytes that were read.
    pub(super) fn digest(&self) -> Digest {
        Digest::sha256(self.text.as_bytes())
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Fails with all faults, if there are any.
    pub(super) fn fail_on_faults(&self) -> Result<(), ConfigFaults> {
        self.sorted_faults(self.faults.take()).map_or(Ok(()), Err)
    }

    /// What the valid file needs and the environment does not provide, if anything.
    pub(super) fn unset(&self) -> Option<ConfigFaults> {
        self.sorted_faults(self.unset.take())
    }

    pub(super) fn warnings(&self) -> Option<ConfigFaults> {
        self.sorted_faults(self.warnings.take())
    }

    /// A model chooses what a tool writes. So no tool may write to a folder that contains this file, a file that it
    /// names, or the store.
    pub(super) fn check_written_folders(&self, store: Option<&Path>) {
        let mut kept = self.files.borrow().clone();
        kept.extend(store.map(Path::to_owned));
        kept.extend(open_token::state_folder());
        for (key, folder) in self.written.borrow().iter() {
            if let Some(file) = overlap::first_inside(folder, &kept) {
                let what = format!(
                    "a model could overwrite {} through this folder; name a folder of its own, such as \"written\"",
                    file.display()
                );
                self.faults.borrow_mut().push(Fault { what, ..key.clone() });
            }
        }
    }

    pub(super) fn written_folders(&self) -> Vec<PathBuf> {
        self.written.borrow().iter().map(|(_, folder)| folder.clone()).collect()
    }

    fn sorted_faults(&self, mut faults: Vec<Fault>) -> Option<ConfigFaults> {
        if faults.is_empty() {
            return None;
        }
        faults.sort_by_key(|fault| fault.line);
        Some(ConfigFaults { file: self.name.clone(), faults })
    }

    pub(super) fn root(&self) -> Location<'_> {
        Location { source: self, key: String::new(), at: 0 }
    }

    /// Reports only the first fault of each line, because the others follow from it.
    pub(super) fn syntax_fault(&self, at: usize, what: &str) {
        let line = self.line(at);
        if self.faults.borrow().iter().all(|fault| fault.line != line) {
            Location { source: self, key: "syntax".to_owned(), at }
                .fault(format!("{what}; correct it there"));
        }
    }

    /// The line number, starting at 1.
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// A location in the file: a key and its position.
#[derive(Clone)]
pub(super) struct Location<'f> {
    source: &'f Source,
    key: String,
    at: usize,
}

impl<'f> Location<'f> {
    pub(super) fn fault(&self, what: impl AsRef<str>) {
        self.source.faults.borrow_mut().push(self.new_fault(what.as_ref()));
    }

    /// Not a mistake in the file: it passes `check`, but a server cannot start with it.
    pub(super) fn unset(&self, what: impl AsRef<str>) {
        self.source.unset.borrow_mut().push(self.new_fault(what.as_ref()));
    }

    /// The file is valid, but this is probably not intended.
    pub(super) fn warn(&self, what: impl AsRef<str>) {
        self.source.warnings.borrow_mut().push(self.new_fault(what.as_ref()));
    }

    /// Joins a message of several lines into one line.
    fn new_fault(&self, what: &str) -> Fault {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        Fault { line: self.source.line(self.at), key: self.key.clone(), what }
    }

    /// Reports a fault and returns None.
    pub(super) fn refuse<T>(&self, what: impl AsRef<str>) -> Option<T> {
        self.fault(what);
        None
    }

    pub(super) fn child(&self, key: &str, at: usize) -> Self {
        let bare =
            key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) && !key.is_empty();
        let key = if bare { key.to_owned() } else { format!("{key:?}") };
        let key = if self.key.is_empty() { key } else { format!("{}.{key}", self.key) };
        Self { source: self.source, key, at }
    }

    /// The location of a key that is missing here.
    pub(super) fn missing(&self, key: &str) -> Self {
        self.child(key, self.at)
    }

    pub(super) fn item(&self, index: usize, at: usize) -> Self {
        Self { source: self.source, key: format!("{}[{index}]", self.key), at }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Every path in the file is relative to its folder.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.source.folder.join(text)
    }

    /// Records that a tool writes to this folder.
    pub(super) fn writes_to(&self, folder: PathBuf) {
        self.source.written.borrow_mut().push((self.new_fault(""), folder));
    }

    /// Reads another file that this key names.
    pub(super) fn read_text(&self, path: &str) -> Option<String> {
        self.source.files.borrow_mut().push(self.path(path));
        match read_text(&self.path(path)) {
            Ok(text) => Some(text),
            Err(error @ FileError::Unreadable(_)) => {
                self.refuse(format!("{error}; write a path relative to the folder of this file"))
            }
            Err(error @ FileError::NotText(_)) => self.refuse(format!("{error}; save it again as UTF-8")),
        }
    }
}

/// Why a file could not be read as text.
#[derive(Debug)]
pub(super) enum FileError {
    Unreadable(String),
    /// The file is readable, but in another encoding.
    NotText(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreadable(why) | Self::NotText(why)) = self;
        f.write_str(why)
    }
}

fn read_text(path: &Path) -> Result<String, FileError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let name = path.display();
    let bytes = read().map_err(|why| FileError::Unreadable(format!("{name} cannot be read: {why}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::Unreadable(format!("{name} has more than {FILE_BYTES_MAX} bytes")));
    }
    if matches!(bytes.as_slice(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return Err(FileError::NotText(format!("{name} is a text in UTF-16, not in UTF-8")));
    }
    // ASCII text in UTF-16 without a byte order mark is valid UTF-8 with a NUL next to every letter.
    if bytes.contains(&0) {
        return Err(FileError::NotText(format!("{name} has NUL bytes, so it is no text, or one in UTF-16")));
    }
    String::from_utf8(bytes).map_err(|_| FileError::NotText(format!("{name} is not a text in UTF-8")))
}
