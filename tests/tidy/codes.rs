//! Every code that a command or the doctor may print has a line in the documents.

use super::tree::{TextFile, assert_no_complaints, file, files};

/// The sources that define codes: the program, and the checks of a store.
const MAKERS: [&str; 4] = [
    "crates/holdpoint/src/cli/",
    "crates/stores/src/doctor/",
    "crates/stores/src/sqlite/doctor/",
    "crates/stores/src/postgres/doctor/",
];

/// String literals in upper case, as codes are, outside of tests. In the program a single word may be a placeholder in
/// the help, such as `FILE`.
fn codes(maker: &TextFile) -> impl Iterator<Item = &str> {
    let production = maker.text.split("#[cfg(test)]").next().unwrap_or_default();
    let may_be_one_word = maker.path.contains("/stores/");
    production.split('"').skip(1).step_by(2).filter(move |text| {
        let is_name_of_the_environment = text.starts_with("HOLDPOINT_") || text.starts_with("CARGO_");
        let has_words = text.contains('_') || may_be_one_word;
        text.len() >= 6
            && has_words
            && !is_name_of_the_environment
            && text.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    })
}

/// The code spans in the first column of a table.
fn described(page: &TextFile) -> Vec<&str> {
    let cells = page.text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

fn complaints(tree: &[TextFile], page: &TextFile) -> Vec<String> {
    let described = described(page);
    let makers = tree.iter().filter(|file| MAKERS.iter().any(|maker| file.path.starts_with(maker)));
    let mut found = Vec::new();
    for maker in makers.filter(|file| file.path.ends_with(".rs") && !file.path.ends_with("_tests.rs")) {
        for code in codes(maker) {
            let of_the_server = format!("docs/errors/{code}.md");
            if !described.contains(&code) && tree.iter().all(|file| file.path != of_the_server) {
                found.push(format!("{}: {code} has no line in {}", maker.path, page.path));
            }
        }
    }
    found
}

#[test]
fn every_code_of_a_command_has_a_line_in_the_documentation() {
    assert_no_complaints(&complaints(files(), file("docs/operations.md")));
    let known = file("docs/operations.md");
    assert!(described(known).iter().filter(|name| name.starts_with("STORE_")).count() > 10);
}

#[test]
fn a_code_without_a_line_is_found() {
    let page = TextFile::new("docs/operations.md", "| `DISK_FULL`, `NO_LOG` | no space |\n");
    let judged = |path: &str, text: &str| complaints(&[TextFile::new(path, text)], &page).len();
    let source = "crates/holdpoint/src/cli/store.rs";
    assert_eq!(judged(source, "f(\"DISK_FULL\", \"NO_LOG\", \"HOLDPOINT_URL\", \"Full\")"), 0);
    assert_eq!(judged(source, "f(\"DISK_EMPTY\")"), 1);
    assert_eq!(judged(source, "#[cfg(test)]\nf(\"DISK_EMPTY\")"), 0);
    assert_eq!(judged("crates/stores/src/doctor/finding.rs", "f(\"ORPHAN\")"), 1);
    assert_eq!(judged(source, "f(\"FOLDER\")"), 0);
    assert_eq!(judged("crates/http/src/a.rs", "f(\"DISK_EMPTY\")"), 0);
    let pages = [TextFile::new(source, "f(\"RUN_LOST\")"), TextFile::new("docs/errors/RUN_LOST.md", "")];
    assert!(complaints(&pages, &page).is_empty());
}
