//! Whole logs as a client reads them, line by line, against files that were read by a person.
//!
//! `GOLDEN_WRITE=1` rewrites the files; read what changed in them before you commit it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs};

use crate::stories;

#[test]
fn every_stored_log_looks_as_it_always_did() {
    let mut names = BTreeSet::new();
    for story in stories::all() {
        let lines: Vec<String> =
            story.envelopes().iter().map(|envelope| serde_json::to_string(envelope).unwrap()).collect();
        let sent = lines.join("\n") + "\n";
        let path = folder().join(format!("{}.jsonl", story.name));
        if env::var_os("GOLDEN_WRITE").is_some() {
            fs::write(&path, &sent).unwrap();
        }
        let expected =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, (sent, expected)) in sent.lines().zip(expected.lines()).enumerate() {
            assert_eq!(sent, expected, "{}, line {}", story.name, number + 1);
        }
        assert_eq!(sent.lines().count(), expected.lines().count(), "{}", story.name);
        names.insert(format!("{}.jsonl", story.name));
    }
    assert!(
        env::var_os("GOLDEN_WRITE").is_none(),
        "they are written; read what has changed, and run this without it"
    );
    let there: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, there, "a golden file has no story, or a story has no file");
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
