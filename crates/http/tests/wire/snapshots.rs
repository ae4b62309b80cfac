//! Whole logs as a client reads them, line by line, against files that were read by a person.
//!
//! `GOLDEN_WRITE=1` rewrites the files; read what changed in them before you commit it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use crate::stories;

#[test]
fn every_stored_log_looks_as_it_always_did() {
    let mut logs = BTreeMap::new();
    for story in stories::all() {
        let lines: Vec<String> =
            story.envelopes().iter().map(|envelope| serde_json::to_string(envelope).unwrap()).collect();
        logs.insert(format!("{}.jsonl", story.name), lines.join("\n") + "\n");
    }
    compare_with_files("golden", &logs);
}

/// Compares texts, by name, with the files of a folder beside this one.
pub(crate) fn compare_with_files(folder: &str, texts: &BTreeMap<String, String>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    for (name, sent) in texts {
        let path = folder.join(name);
        if env::var_os("GOLDEN_WRITE").is_some() {
            fs::write(&path, sent).unwrap();
        }
        let expected =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, (sent, expected)) in sent.lines().zip(expected.lines()).enumerate() {
            assert_eq!(sent, expected, "{name}, line {}", number + 1);
        }
        assert_eq!(sent.lines().count(), expected.lines().count(), "{name}");
    }
    assert!(
        env::var_os("GOLDEN_WRITE").is_none(),
        "they are written; read what has changed, and run this without it"
    );
    let there: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        texts.keys().cloned().collect::<BTreeSet<_>>(),
        there,
        "a file has no story, or a story has no file"
    );
}
