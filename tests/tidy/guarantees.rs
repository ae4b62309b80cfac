//! Every test, rule and planted fault that the guarantees name exists.

use super::tree::{TextFile, assert_no_complaints, file, files};

const GUARANTEES: &str = "docs/guarantees.md";

/// The text between two backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Single words in italics: the names of invariants and rules.
fn italics(text: &str) -> impl Iterator<Item = &str> {
    let plain = text.split('`').step_by(2).flat_map(|part| part.split("**").step_by(2));
    let words = plain.flat_map(|part| part.split('*').skip(1).step_by(2));
    words.filter(|word| {
        word.chars().all(|c| c.is_ascii_alphabetic()) && word.starts_with(|c: char| c.is_uppercase())
    })
}

/// `module::test`, a test whose name begins so (`module::a107_…`), or the name of a planted fault.
fn complaints(document: &TextFile, tree: &[TextFile]) -> Vec<String> {
    let is_test = |module: &str, name: &str| {
        let written = match name.strip_suffix('…') {
            Some(beginning) => format!("fn {beginning}"),
            None => format!("fn {name}("),
        };
        let is_of_the_module = |file: &&TextFile| {
            file.path.trim_end_matches(".rs").split('/').any(|part| module.rsplit("::").next() == Some(part))
        };
        tree.iter().filter(is_of_the_module).any(|file| file.text.contains(&written))
    };
    let is_fault = |name: &str| {
        let patch = format!("sim/faults/{name}.patch");
        tree.iter().any(|file| file.path == patch)
    };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(document.text.lines()) {
        for span in code_spans(line) {
            let is_known = match span.rsplit_once("::") {
                Some((module, test)) => is_test(module, test),
                None if span.starts_with("engine-") || span.starts_with("kill-") => is_fault(span),
                None => true,
            };
            if !is_known {
                found.push(format!("{}:{number}: `{span}` is not in this tree", document.path));
            }
        }
        for name in italics(line) {
            // The forms in which the simulator and the kill matrix list their rules.
            let listed = [format!("\n    {name},\n"), format!("\n    {name}: \"")];
            if !tree.iter().any(|file| listed.iter().any(|one| file.text.contains(one))) {
                found.push(format!("{}:{number}: the tree has no rule *{name}*", document.path));
            }
        }
        let is_promise = line.starts_with("| ") && !line.starts_with("| promise");
        if is_promise && line.rsplit_once(" | ").is_none_or(|(_, shown)| shown.len() <= 2) {
            found.push(format!("{}:{number}: nothing shows this promise", document.path));
        }
    }
    found
}

#[test]
fn every_promise_names_what_shows_it_and_that_is_there() {
    assert_no_complaints(&complaints(file(GUARANTEES), files()));
}

#[test]
fn a_promise_that_names_a_missing_test_is_found() {
    let tree = [
        TextFile::new("tests/m.rs", "#[test]\nfn it_holds() {}\nenum Rule {\n    ItStays,\n}\n"),
        TextFile::new("sim/faults/kill-it.patch", ""),
    ];
    let document = |text: &str| TextFile::new("docs/guarantees.md", text);
    assert!(
        complaints(&document("| it | `m::it_holds`, `m::it_…`, `kill-it`, *ItStays*, *held* |"), &tree)
            .is_empty()
    );
    for bad in [
        "| it | `m::it_breaks` |",
        "| it | `m::if_…` |",
        "| it | `n::it_holds` |",
        "| it | `kill-them` |",
        "| it | *ItGoes* |",
        "| it |  |",
    ] {
        assert_eq!(complaints(&document(bad), &tree).len(), 1, "{bad}");
    }
}
