//! The files of the repository, read once and shared by every rule.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file of the repository. Rules take these, so that a test can plant a bad one.
pub(super) struct TextFile {
    /// Relative to the root of the repository, with `/` between the parts.
    pub(super) path: String,
    /// Empty when the file is not UTF-8: a picture can be linked to, and has no lines to judge.
    pub(super) text: String,
}

impl TextFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(super) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// A file that holds tests only: it may name what the rules forbid in production code.
    pub(super) fn is_test_code(&self) -> bool {
        // The package `checks` in `tests/` is production code of its own kind, so its folder does not count.
        let inner = self.path.strip_prefix("tests/").unwrap_or(&self.path);
        inner.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
    }
}

pub(super) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the package lies one folder below the root")
            .to_owned()
    })
}

/// Every file below the root, in the order of their paths.
pub(super) fn files() -> &'static [TextFile] {
    static FILES: OnceLock<Vec<TextFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut files = Vec::new();
        read_folder(root(), &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    })
}

pub(super) fn files_with_extension(extension: &str) -> impl Iterator<Item = &'static TextFile> {
    files().iter().filter(move |file| file.has_extension(extension))
}

pub(super) fn file(path: &str) -> &'static TextFile {
    files()
        .iter()
        .find(|file| file.path == path)
        .unwrap_or_else(|| panic!("{path} is missing; other rules read it"))
}

/// Fails with every complaint at once, so that one run shows all there is to mend.
pub(super) fn assert_no_complaints(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaint(s):\n{}", complaints.len(), complaints.join("\n"));
}

fn read_folder(folder: &Path, files: &mut Vec<TextFile>) {
    for entry in fs::read_dir(folder).expect("the folder was listed by its parent") {
        let path = entry.expect("the entry is readable").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            // Files of a build, a mutation run or git are not checked.
            let is_generated = name == ".git" || name == "target" || name.starts_with("mutants.out");
            if !is_generated {
                read_folder(&path, files);
            }
        } else {
            let text = String::from_utf8(fs::read(&path).expect("the file is readable")).unwrap_or_default();
            let relative = path.strip_prefix(root()).expect("the walk began at the root");
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            files.push(TextFile { path: parts.join("/"), text });
        }
    }
}

#[test]
fn the_walk_finds_this_file_and_no_build_output() {
    assert!(files().iter().any(|file| file.path == "tests/tidy/tree.rs"));
    assert!(!files().iter().any(|file| file.path.starts_with("target/") || file.path.starts_with(".git/")));
}

#[test]
fn test_code_is_told_from_production_code() {
    let is_test_code = |path: &str| TextFile::new(path, "").is_test_code();
    assert!(is_test_code("crates/machine/tests/turns.rs"));
    assert!(is_test_code("crates/machine/src/turn/tests.rs"));
    assert!(is_test_code("crates/machine/src/turn_tests.rs"));
    assert!(!is_test_code("crates/machine/src/turn.rs"));
    assert!(!is_test_code("tests/tidy/tree.rs"));
}
