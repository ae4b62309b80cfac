//! The commands in the documents exist, and the version they name is the one we build with.

use super::markdown::parse;
use super::tree::{TextFile, assert_no_complaints, file, files, files_with_extension};

fn make_targets(makefile: &str) -> Vec<&str> {
    makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        // `NAME := value` is a variable, `.PHONY:` is addressed to make, a recipe begins with a tab.
        .filter(|(_, rest)| !rest.starts_with('='))
        .map(|(target, _)| target)
        .filter(|target| !target.is_empty() && target.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .collect()
}

fn package_name(manifest: &str) -> Option<&str> {
    let package = manifest.split_once("[package]")?.1;
    let name = package.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim_matches('"'))
}

fn command_complaints(document: &TextFile, targets: &[&str], packages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (line, code) in parse(&document.text).code {
        for command in code.split("&&") {
            let words: Vec<&str> = command.split_whitespace().skip_while(|word| *word == "$").collect();
            let arguments = words.get(1..).unwrap_or_default();
            let wrong: Option<String> = match words.first() {
                Some(&"make") => arguments
                    .iter()
                    .take_while(|word| !word.starts_with('#'))
                    // `SEEDS=10` sets a variable, `-j` is a flag.
                    .filter(|word| !word.contains('=') && !word.starts_with('-'))
                    .find(|word| !targets.contains(word))
                    .map(|word| format!("the Makefile has no target `{word}`")),
                Some(&"cargo") => arguments
                    .windows(2)
                    .find(|pair| pair[0] == "-p" && !packages.contains(&pair[1]))
                    .map(|pair| format!("the workspace has no package `{}`", pair[1])),
                Some(_) | None => None,
            };
            found.extend(wrong.map(|why| format!("{}:{line}: `{}`: {why}", document.path, command.trim())));
        }
    }
    found
}

/// The programs of the table of parsers that `cargo test fuzz` passes over, though their row names no other command.
/// `cargo test` looks for the word in the path of a test: its module's or its own name, not that of its program.
fn unfuzzed<'f>(table: &str, text_of: impl Fn(&str) -> Option<&'f str>) -> Vec<String> {
    let rows = table.lines().filter(|row| row.starts_with("| ") && row.contains("`crates/"));
    let rows = rows.filter(|row| !row.contains("`cargo test "));
    let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let mut found = Vec::new();
    for span in spans.filter(|span| span.starts_with("crates/")) {
        let path = if span.ends_with(".rs") { span.to_owned() } else { format!("{span}/main.rs") };
        let Some(text) = text_of(&path) else {
            found.push(format!("{path} is not there"));
            continue;
        };
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let is_module = name != "main.rs" && !folder.ends_with("/tests");
        if is_module && name.contains("fuzz") {
            continue;
        }
        let tests: Vec<&str> = text
            .split("#[test]")
            .skip(1)
            .filter_map(|after| after.split_once("fn ")?.1.split_once('('))
            .map(|(name, _)| name)
            .collect();
        found.extend(tests.is_empty().then(|| format!("{path} has no test")));
        let passed_over = tests.iter().filter(|test| !test.contains("fuzz"));
        found.extend(passed_over.map(|test| format!("{path}: `cargo test fuzz` passes over {test}")));
    }
    found
}

/// The versions that the text names as `Rust 1.95`.
fn rust_versions(text: &str) -> Vec<&str> {
    text.split("Rust ")
        .skip(1)
        .filter_map(|after| after.split(|c: char| !c.is_ascii_digit() && c != '.').next())
        .map(|version| version.trim_end_matches('.'))
        .filter(|version| version.contains('.'))
        .collect()
}

fn version_complaints(readme: &TextFile, manifest: &TextFile) -> Vec<String> {
    let wanted = manifest
        .text
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .map_or("", |version| version.trim_matches('"'));
    let named = rust_versions(&readme.text);
    if named.is_empty() {
        return vec![format!("{}: say which version of Rust is needed: `Rust {wanted}`", readme.path)];
    }
    named
        .into_iter()
        .filter(|version| *version != wanted)
        .map(|version| format!("{}: says Rust {version}, {} says {wanted}", readme.path, manifest.path))
        .collect()
}

#[test]
fn every_command_in_a_document_exists() {
    let targets = make_targets(&file("Makefile").text);
    let manifests = files().iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let packages: Vec<&str> = manifests.filter_map(|manifest| package_name(&manifest.text)).collect();
    let found: Vec<String> = files_with_extension("md")
        .flat_map(|document| command_complaints(document, &targets, &packages))
        .collect();
    assert_no_complaints(&found);
}

#[test]
fn every_fuzzed_parser_is_found_by_the_command_of_its_page() {
    let proof = &file("docs/proof.md").text;
    let (_, after) = proof.split_once("## Parsers of foreign input").expect("the page has the table");
    let (table, _) = after.split_once("\n## ").expect("and more below");
    assert!(table.matches("| `crates/").count() >= 8, "the table is shorter than it was");
    let text_of = |path: &str| files().iter().find(|file| file.path == path).map(|file| file.text.as_str());
    assert_no_complaints(&unfuzzed(table, text_of));
}

#[test]
fn a_test_that_the_word_fuzz_does_not_find_is_found() {
    let text_of = |path: &str| match path {
        "crates/a/tests/b/fuzz.rs" => Some("#[test]\nfn reads() {}"),
        "crates/a/tests/fuzz.rs" => Some("#[test]\nfn fuzzed_one() {}\n#[test]\nfn other() {}"),
        "crates/a/tests/fuzz/main.rs" => Some("mod a;"),
        _ => None,
    };
    let judged = |cell: &str| unfuzzed(&format!("| what | {cell} |\n"), text_of);
    assert!(judged("`crates/a/tests/b/fuzz.rs`").is_empty());
    assert!(judged("`crates/a/tests/fuzz.rs`, with `cargo test -p a`").is_empty());
    assert_eq!(
        judged("`crates/a/tests/fuzz.rs`"),
        ["crates/a/tests/fuzz.rs: `cargo test fuzz` passes over other"]
    );
    assert_eq!(judged("`crates/a/tests/fuzz`"), ["crates/a/tests/fuzz/main.rs has no test"]);
    assert_eq!(judged("`crates/a/src/gone.rs`"), ["crates/a/src/gone.rs is not there"]);
}

#[test]
fn the_version_of_rust_in_the_readme_is_the_one_in_the_manifest() {
    assert_no_complaints(&version_complaints(file("README.md"), file("Cargo.toml")));
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let targets = make_targets("SEEDS := 10\n.PHONY: test\ntest: toolchain\n\techo a: b\ntest-long:\n");
    assert_eq!(targets, ["test", "test-long"]);
    let packages = [package_name("[package]\nname = \"sim\"\n").expect("the manifest names a package")];
    let judged = |code: &str| {
        command_complaints(&TextFile::new("README.md", &format!("Type `{code}`.\n")), &targets, &packages)
    };
    for good in ["make", "make test", "make test-long SEEDS=5", "cargo run -p sim -- story", "a make gone"] {
        assert!(judged(good).is_empty(), "{good}");
    }
    for bad in ["make gone", "cd x && make gone", "make test gone", "cargo run -p gone"] {
        assert_eq!(judged(bad).len(), 1, "{bad}");
    }
}

#[test]
fn a_wrong_or_missing_version_of_rust_is_found() {
    let manifest = TextFile::new("Cargo.toml", "[workspace.package]\nrust-version = \"1.95\"\n");
    let judged = |text: &str| version_complaints(&TextFile::new("README.md", text), &manifest).len();
    assert_eq!(judged("Needs Rust 1.95. Rust is a language."), 0);
    assert_eq!(judged("Needs Rust 1.94 or later."), 1);
    assert_eq!(judged("Needs Rust 1.95; tested with Rust 1.88."), 1);
    assert_eq!(judged("Needs Rust."), 1);
}
