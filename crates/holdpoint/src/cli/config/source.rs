//! The file as it is read: its text, its folder, and the faults that were found in it so far.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::fault::{Fault, Misconfigured};

/// Longer files are refused: a configuration, a schema or a script is written by a person.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) struct Source {
    name: String,
    folder: PathBuf,
    text: String,
    faults: RefCell<Vec<Fault>>,
    /// What the file asks of its surroundings and does not get.
    unset: RefCell<Vec<Fault>>,
    warnings: RefCell<Vec<Fault>>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let text = text_of(path)?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let name = path.display().to_string();
        Ok(Self {
            name,
            folder,
            text,
            faults: RefCell::default(),
            unset: RefCell::default(),
            warnings: RefCell::default(),
        })
    }

    /// A file of this folder, without being one.
    #[cfg(test)]
    pub(super) fn with(folder: &Path, text: String) -> Self {
        Self {
            name: "holdpoint.toml".to_owned(),
            folder: folder.to_owned(),
            text,
            faults: RefCell::default(),
            unset: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The mistakes, if there are any.
    pub(super) fn verdict(&self) -> Result<(), Misconfigured> {
        self.misconfigured(self.faults.take()).map_or(Ok(()), Err)
    }

    /// What is right in the file and missing around it, if anything is.
    pub(super) fn unset(&self) -> Option<Misconfigured> {
        self.misconfigured(self.unset.take())
    }

    pub(super) fn warnings(&self) -> Option<Misconfigured> {
        self.misconfigured(self.warnings.take())
    }

    fn misconfigured(&self, mut faults: Vec<Fault>) -> Option<Misconfigured> {
        if faults.is_empty() {
            return None;
        }
        faults.sort_by_key(|fault| fault.line);
        Some(Misconfigured { file: self.name.clone(), faults })
    }

    pub(super) fn whole(&self) -> Place<'_> {
        Place { source: self, key: String::new(), at: 0 }
    }

    /// The first of its line: the others are echoes of it.
    pub(super) fn syntax(&self, at: usize, what: &str) {
        let line = self.line(at);
        if self.faults.borrow().iter().all(|fault| fault.line != line) {
            Place { source: self, key: "syntax".to_owned(), at }.fault(format!("{what}; correct it there"));
        }
    }

    /// From 1.
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// A place in the file: a key, and where it stands.
#[derive(Clone)]
pub(super) struct Place<'f> {
    source: &'f Source,
    key: String,
    at: usize,
}

impl<'f> Place<'f> {
    pub(super) fn fault(&self, what: impl AsRef<str>) {
        self.source.faults.borrow_mut().push(self.told(what.as_ref()));
    }

    /// Not a mistake of the file: a server cannot start so, but the file can be checked.
    pub(super) fn unset(&self, what: impl AsRef<str>) {
        self.source.unset.borrow_mut().push(self.told(what.as_ref()));
    }

    /// The file can be used as it is, and is likely not meant so.
    pub(super) fn warn(&self, what: impl AsRef<str>) {
        self.source.warnings.borrow_mut().push(self.told(what.as_ref()));
    }

    /// A message of several lines becomes one line.
    fn told(&self, what: &str) -> Fault {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        Fault { line: self.source.line(self.at), key: self.key.clone(), what }
    }

    /// Says what is wrong and gives nothing.
    pub(super) fn refuse<T>(&self, what: impl AsRef<str>) -> Option<T> {
        self.fault(what);
        None
    }

    pub(super) fn below(&self, key: &str, at: usize) -> Self {
        let bare =
            key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) && !key.is_empty();
        let key = if bare { key.to_owned() } else { format!("{key:?}") };
        let key = if self.key.is_empty() { key } else { format!("{}.{key}", self.key) };
        Self { source: self.source, key, at }
    }

    /// A key that should stand here.
    pub(super) fn missing(&self, key: &str) -> Self {
        self.below(key, self.at)
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

    /// The text of another file that this place names.
    pub(super) fn text_of(&self, path: &str) -> Option<String> {
        match text_of(&self.path(path)) {
            Ok(text) => Some(text),
            Err(why) => self.refuse(format!("{why}; write a path relative to the folder of this file")),
        }
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let name = path.display();
    let bytes = read().map_err(|why| format!("{name} cannot be read: {why}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{name} has more than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{name} is not a text in UTF-8"))
}
