//! Files and functions stay short enough to read; what is already longer may only shrink.

use std::collections::BTreeMap;

use super::rust_code::{code_only, functions, production_code, production_line_count};
use super::tree::{TextFile, assert_no_complaints, file, files_with_extension};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

struct Measured {
    line_count: usize,
    line_count_max: usize,
}

/// The lengths of one file and of its functions by the names that `ratchet.txt` uses.
fn measure(source: &TextFile) -> BTreeMap<String, Measured> {
    let mut lengths = BTreeMap::new();
    // A test is one story from top to bottom, and a table of cases may have any length.
    if source.is_test_code() {
        return lengths;
    }
    let code = code_only(&source.text);
    let line_count = production_line_count(&code);
    lengths.insert(source.path.clone(), Measured { line_count, line_count_max: FILE_LINES_MAX });
    for function in functions(&production_code(&code)) {
        let key = format!("{}::{}", source.path, function.name);
        let longest =
            lengths.entry(key).or_insert(Measured { line_count: 0, line_count_max: FUNCTION_LINES_MAX });
        // Two methods may share a name; the longer one counts.
        longest.line_count = longest.line_count.max(function.line_count);
    }
    lengths
}

fn complaints(measured: &BTreeMap<String, Measured>, ratchet: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut allowed = BTreeMap::new();
    for line in ratchet.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match line.split_once(' ').map(|(key, count)| (key, count.parse::<usize>())) {
            Some((key, Ok(count))) => {
                allowed.insert(key, count);
            }
            Some((_, Err(_))) | None => found.push(format!("ratchet.txt: `{line}` is not `path lines`")),
        }
    }
    for (key, count) in &allowed {
        let Some(actual) = measured.get(*key) else {
            found.push(format!("ratchet.txt: {key} does not exist; remove the entry"));
            continue;
        };
        if actual.line_count <= actual.line_count_max {
            found.push(format!("ratchet.txt: {key} fits the limit; remove the entry"));
        } else if actual.line_count < *count {
            found.push(format!("ratchet.txt: {key} shrank to {}; lower the entry", actual.line_count));
        } else if actual.line_count > *count {
            found.push(format!("{key} grew from {count} to {} lines; split it", actual.line_count));
        }
    }
    for (key, actual) in measured {
        if actual.line_count > actual.line_count_max && !allowed.contains_key(key.as_str()) {
            let (count, max) = (actual.line_count, actual.line_count_max);
            found.push(format!("{key} has {count} lines, at most {max}; split it by subject"));
        }
    }
    found
}

#[test]
fn files_and_functions_are_short_or_shrinking() {
    let mut measured = BTreeMap::new();
    for source in files_with_extension("rs") {
        measured.extend(measure(source));
    }
    assert_no_complaints(&complaints(&measured, &file("tests/ratchet.txt").text));
}

#[test]
fn what_is_too_long_is_found() {
    let long_file = TextFile::new("src/run.rs", &"\n".repeat(FILE_LINES_MAX + 1));
    assert_eq!(
        complaints(&measure(&long_file), ""),
        ["src/run.rs has 501 lines, at most 500; split it by subject"]
    );

    let body = "    step();\n".repeat(FUNCTION_LINES_MAX - 1);
    let long_function = TextFile::new("src/run.rs", &format!("fn decide() {{\n{body}}}\n"));
    assert_eq!(
        complaints(&measure(&long_function), ""),
        ["src/run.rs::decide has 71 lines, at most 70; split it by subject"]
    );

    let story = TextFile::new("src/run/tests.rs", &"\n".repeat(FILE_LINES_MAX + 1));
    assert!(complaints(&measure(&story), "").is_empty());
}

#[test]
fn the_ratchet_turns_one_way_only() {
    let long_file = TextFile::new("src/run.rs", &"\n".repeat(600));
    let measured = measure(&long_file);
    assert!(complaints(&measured, "# A comment.\n\nsrc/run.rs 600\n").is_empty());
    assert_eq!(
        complaints(&measured, "src/run.rs 599\n"),
        ["src/run.rs grew from 599 to 600 lines; split it"]
    );
    assert_eq!(
        complaints(&measured, "src/run.rs 601\n"),
        ["ratchet.txt: src/run.rs shrank to 600; lower the entry"]
    );
    assert_eq!(
        complaints(&measured, "src/run.rs 600\nsrc/gone.rs 700\n"),
        ["ratchet.txt: src/gone.rs does not exist; remove the entry"]
    );
    assert_eq!(
        complaints(&measured, "src/run.rs 600\nsrc/run.rs\n"),
        ["ratchet.txt: `src/run.rs` is not `path lines`"]
    );

    let short_file = TextFile::new("src/run.rs", "\n");
    assert_eq!(
        complaints(&measure(&short_file), "src/run.rs 600\n"),
        ["ratchet.txt: src/run.rs fits the limit; remove the entry"]
    );
}
