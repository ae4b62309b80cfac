//! Every Rust file says in its first line what it is about.

use super::tree::{TextFile, assert_no_complaints, files_with_extension};

fn complaints(file: &TextFile) -> Vec<String> {
    let first = file.text.lines().next().unwrap_or_default();
    // A header of two words is a file name written twice.
    let says_something =
        first.strip_prefix("//! ").is_some_and(|sentence| sentence.split_whitespace().count() >= 3);
    if says_something {
        return Vec::new();
    }
    vec![format!("{}:1: begin with a line `//! …` that says what the file holds", file.path)]
}

#[test]
fn every_rust_file_begins_by_saying_what_it_holds() {
    let found: Vec<String> = files_with_extension("rs").flat_map(complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_file_without_a_header_is_found() {
    for bad in ["", "use core::fmt;\n", "// Turns.\n", "\n//! Which turn is open.\n", "//! Turns.\n"] {
        assert_eq!(complaints(&TextFile::new("src/turn.rs", bad)).len(), 1, "{bad:?}");
    }
    assert!(complaints(&TextFile::new("src/turn.rs", "//! Which turn is open.\n")).is_empty());
}
