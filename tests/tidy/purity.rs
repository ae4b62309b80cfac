//! The machine decides and does nothing: no waiting, no clock, no system, no order that differs by process.

use super::rust_code::{code_only, lines_with_word, production_code};
use super::tree::{TextFile, assert_no_complaints, file, files_with_extension};

const MACHINE_SOURCES: &str = "crates/machine/src/";

const FORBIDDEN: [(&str, &str); 8] = [
    ("async", "waiting is done by the shell"),
    (".await", "waiting is done by the shell"),
    ("std::", "use `core` or `alloc`; what only `std` has is an effect"),
    ("extern crate std", "use `core` or `alloc`; what only `std` has is an effect"),
    ("HashMap", "iterates in another order in every process; use `BTreeMap`"),
    ("HashSet", "iterates in another order in every process; use `BTreeSet`"),
    ("SystemTime", "take the time as an argument: `now: Timestamp`"),
    ("Instant", "take the time as an argument: `now: Timestamp`"),
];

fn complaints(source: &TextFile) -> Vec<String> {
    if !source.path.starts_with(MACHINE_SOURCES) || source.is_test_code() {
        return Vec::new();
    }
    let code = production_code(&code_only(&source.text));
    let mut found = Vec::new();
    for (forbidden, instead) in FORBIDDEN {
        for line in lines_with_word(&code, forbidden) {
            found.push(format!("{}:{line}: `{forbidden}` in the machine: {instead}", source.path));
        }
    }
    found
}

/// What the machine and the engine know only as traits, and in which crate it belongs.
const FOREIGN: [(&str, &str); 14] = [
    ("axum", "crates/http"),
    ("hyper", "crates/http"),
    ("sse", "crates/http"),
    ("openapi", "crates/http"),
    ("ag_ui", "crates/http"),
    ("copilotkit", "crates/http"),
    ("openai", "crates/models"),
    ("anthropic", "crates/models"),
    ("gemini", "crates/models"),
    ("ollama", "crates/models"),
    ("sqlite", "crates/stores"),
    ("rusqlite", "crates/stores"),
    ("postgres", "crates/stores"),
    ("postgresql", "crates/stores"),
];

/// Names of vendors, protocols and databases in the code and the strings of the machine and the engine. Comments may name them.
fn foreign_names(source: &TextFile) -> Vec<String> {
    let is_inside =
        ["crates/machine/src/", "crates/engine/src/"].iter().any(|folder| source.path.starts_with(folder));
    if !is_inside || source.is_test_code() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().to_lowercase();
        for (name, home) in FOREIGN {
            if !lines_with_word(&code, name).is_empty() {
                found.push(format!("{}:{}: `{name}` belongs in {home}", source.path, number + 1));
            }
        }
    }
    found
}

fn says_no_std(root: &TextFile) -> bool {
    code_only(&root.text).lines().any(|line| line.trim() == "#![no_std]")
}

#[test]
fn the_machine_uses_nothing_but_core_and_alloc() {
    let found: Vec<String> = files_with_extension("rs").flat_map(complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn the_machine_and_the_engine_name_no_vendor_protocol_or_database() {
    let found: Vec<String> = files_with_extension("rs").flat_map(foreign_names).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_foreign_name_is_found_in_code_and_strings_of_the_machine_and_the_engine_only() {
    let line = "const DATABASE: &str = \"PostgreSQL\"; // SQLite is meant in a comment.\n";
    for folder in ["crates/machine/src", "crates/engine/src"] {
        let found = foreign_names(&TextFile::new(&format!("{folder}/a.rs"), line));
        assert_eq!(found, [format!("{folder}/a.rs:1: `postgresql` belongs in crates/stores")]);
        assert!(foreign_names(&TextFile::new(&format!("{folder}/a/tests.rs"), line)).is_empty());
    }
    assert!(foreign_names(&TextFile::new("crates/stores/src/a.rs", line)).is_empty());
}

#[test]
fn the_machine_is_compiled_without_std() {
    // `async` is legal in `no_std`, and `std` can be named under it; so both rules are needed.
    assert!(says_no_std(file("crates/machine/src/lib.rs")), "crates/machine/src/lib.rs must say #![no_std]");
}

#[test]
fn each_impure_word_is_found_in_production_code_only() {
    for (forbidden, _) in FORBIDDEN {
        let line = format!("fn f() {{ {forbidden} }}\n");
        let found = complaints(&TextFile::new("crates/machine/src/run.rs", &line));
        // `extern crate std` has no path in it, so the rule about `std::` stays silent.
        assert_eq!(found.len(), 1, "{forbidden}: {found:?}");

        let in_a_test = format!("#[cfg(test)]\nmod tests {{\n{line}}}\n");
        for good in [
            TextFile::new("crates/machine/src/run.rs", &in_a_test),
            TextFile::new("crates/machine/src/run/tests.rs", &line),
            TextFile::new("crates/machine/tests/run.rs", &line),
            TextFile::new("sim/src/world/course.rs", &line),
        ] {
            assert!(complaints(&good).is_empty(), "{forbidden} in {}", good.path);
        }
    }
}

#[test]
fn a_commented_or_conditional_no_std_does_not_count() {
    assert!(says_no_std(&TextFile::new("lib.rs", "//! Decides.\n\n#![no_std]\n")));
    assert!(!says_no_std(&TextFile::new("lib.rs", "//! Decides.\n// #![no_std]\n")));
    assert!(!says_no_std(&TextFile::new("lib.rs", "#![cfg_attr(not(test), no_std)]\n")));
}
