//! The planted faults still fit the code they are planted in.
//!
//! `make test-long` applies each patch to a copy of the tree and expects the simulator to find it. A patch that has
//! drifted away from the code would silently test nothing, so every run checks that each one still applies.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::tree::{TextFile, assert_no_complaints, files, root};

const FAULTS: &str = "sim/faults/";
/// What the simulator, the kill matrix and the tests that patches name run.
const UNDER_TEST: [&str; 5] = [
    "crates/machine/src/",
    "crates/engine/src/",
    "crates/stores/src/",
    "crates/http/src/",
    "crates/tools/src/",
];

/// A fault belongs in the code under test: a patch to the simulator would prove only that the simulator can fail.
fn scope_complaints(patch: &TextFile) -> Vec<String> {
    let changed: Vec<&str> = patch
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ ")))
        .map(|path| path.split('\t').next().unwrap_or(path))
        .collect();
    if changed.is_empty() {
        return vec![format!("{}: changes nothing", patch.path)];
    }
    let is_under_test = |path: &&&str| {
        path.strip_prefix("a/")
            .or_else(|| path.strip_prefix("b/"))
            .is_some_and(|inner| UNDER_TEST.iter().any(|folder| inner.starts_with(folder)))
    };
    changed
        .iter()
        .filter(|path| !is_under_test(path))
        .map(|path| format!("{}: changes {path}; a fault changes {} only", patch.path, UNDER_TEST.join(", ")))
        .collect()
}

/// Tries the patch without writing anything.
fn fit_complaints(patch: &TextFile, tree: &Path) -> Vec<String> {
    let mut command = Command::new("git");
    command.args(["apply", "--check", "-"]).current_dir(tree);
    // An unpacked archive is not a repository. Without this, git would use one further up and skip every path.
    if let Some(above) = tree.parent() {
        command.env("GIT_CEILING_DIRECTORIES", above);
    }
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut git) = spawned else {
        return vec!["git is needed to check the planted faults; install git and run again".to_owned()];
    };
    let mut input = git.stdin.take().expect("standard input is piped");
    // git may reject the patch before it has read all of it. Its own message, below, is better than a write error.
    let _ = input.write_all(patch.text.as_bytes());
    drop(input);
    let output = git.wait_with_output().expect("git was started above");
    if output.status.success() {
        return Vec::new();
    }
    let why = String::from_utf8_lossy(&output.stderr);
    vec![format!("{}: no longer applies; write it again for the current code: {}", patch.path, why.trim())]
}

pub(super) fn patches() -> Vec<&'static TextFile> {
    files().iter().filter(|file| file.path.starts_with(FAULTS) && file.has_extension("patch")).collect()
}

#[test]
fn every_planted_fault_still_applies() {
    let patches = patches();
    assert!(!patches.is_empty(), "{FAULTS} has no patch, so nothing shows that the simulator finds faults");
    let scope = patches.iter().flat_map(|patch| scope_complaints(patch));
    let fit = patches.iter().flat_map(|patch| fit_complaints(patch, root()));
    assert_no_complaints(&scope.chain(fit).collect::<Vec<_>>());
}

#[test]
fn a_fault_that_has_drifted_is_found() {
    let patch = |context: &str| {
        let header = "--- a/LICENSE-MIT\n+++ b/LICENSE-MIT\n@@ -1,3 +1,3 @@\n";
        TextFile::new(
            "sim/faults/a.patch",
            &format!(
                "{header}-{context}\n+Another licence\n \n Copyright (c) 2026 The Holdpoint contributors\n"
            ),
        )
    };
    assert_no_complaints(&fit_complaints(&patch("MIT License"), root()));
    assert_eq!(fit_complaints(&patch("A line that was never there"), root()).len(), 1);
    assert_eq!(fit_complaints(&TextFile::new("sim/faults/a.patch", ""), root()).len(), 1);
}

#[test]
fn a_fault_outside_of_the_code_under_test_is_found() {
    let patch = |path: &str| TextFile::new("sim/faults/a.patch", &format!("--- a/{path}\n+++ b/{path}\n"));
    assert!(scope_complaints(&patch("crates/machine/src/run.rs")).is_empty());
    assert_eq!(scope_complaints(&patch("sim/src/world/course.rs")).len(), 2);
    assert_eq!(scope_complaints(&TextFile::new("sim/faults/a.patch", "Only a story.\n")).len(), 1);
}
