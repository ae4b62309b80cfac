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

fn says_no_std(root: &TextFile) -> bool {
    code_only(&root.text).lines().any(|line| line.trim() == "#![no_std]")
}

#[test]
fn the_machine_uses_nothing_but_core_and_alloc() {
    let found: Vec<String> = files_with_extension("rs").flat_map(complaints).collect();
    assert_no_complaints(&found);
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
