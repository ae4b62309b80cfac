//! Every test, rule and planted fault that the guarantees name is there.

use super::tree::{TextFile, assert_no_complaints, file, files};

const GUARANTEES: &str = "docs/guarantees.md";

/// What stands between two backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `module::test`, a test whose name begins so (`module::a107_…`), or the name of a planted fault.
fn complaints(document: &TextFile, tree: &[TextFile]) -> Vec<String> {
    let is_test = |name: &str| match name.strip_suffix('…') {
        Some(beginning) => tree.iter().any(|file| file.text.contains(&format!("fn {beginning}"))),
        None => tree.iter().any(|file| file.text.contains(&format!("fn {name}("))),
    };
    let is_fault = |name: &str| {
        let patch = format!("sim/faults/{name}.patch");
        tree.iter().any(|file| file.path == patch)
    };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(document.text.lines()) {
        for span in code_spans(line) {
            let is_known = match span.rsplit_once("::") {
                Some((_, test)) => is_test(test),
                None if span.starts_with("engine-") || span.starts_with("kill-") => is_fault(span),
                None => true,
            };
            if !is_known {
                found.push(format!("{}:{number}: `{span}` is not in this tree", document.path));
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
    let tree =
        [TextFile::new("a.rs", "#[test]\nfn it_holds() {}\n"), TextFile::new("sim/faults/kill-it.patch", "")];
    let document = |text: &str| TextFile::new("docs/guarantees.md", text);
    assert!(complaints(&document("| it | `m::it_holds`, `m::it_…`, `kill-it` |"), &tree).is_empty());
    for bad in ["| it | `m::it_breaks` |", "| it | `m::if_…` |", "| it | `kill-them` |", "| it |  |"] {
        assert_eq!(complaints(&document(bad), &tree).len(), 1, "{bad}");
    }
}
