//! Where code comes from: the default registry or this workspace, and every package under the same lints.

use super::tree::{TextFile, assert_no_complaints, file, files};

/// How a lock file names the default registry, wherever the bytes are fetched from.
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn manifests() -> impl Iterator<Item = &'static TextFile> {
    files().iter().filter(|file| file.path.ends_with("/Cargo.toml"))
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.split(" = ").next() == Some(key))?;
    Some(line.split_once(" = ")?.1.trim_matches('"'))
}

fn lock_complaints(lock: &str, own_packages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = value(package, "name").unwrap_or_default();
        match value(package, "source") {
            Some(DEFAULT_REGISTRY) => {}
            Some(other) => {
                found.push(format!("Cargo.lock: {name} comes from {other}, not the default registry"))
            }
            None if own_packages.contains(&name) => {}
            None => found.push(format!("Cargo.lock: {name} has no source and is not of this workspace")),
        }
    }
    found
}

fn lint_complaints(manifest: &TextFile) -> Vec<String> {
    let inherits =
        manifest.text.split_once("[lints]\n").is_some_and(|(_, after)| after.starts_with("workspace = true"));
    if inherits {
        return Vec::new();
    }
    vec![format!(
        "{}: take over the lints of the workspace: `[lints]` with `workspace = true`",
        manifest.path
    )]
}

#[test]
fn every_dependency_comes_from_the_default_registry() {
    let own_packages: Vec<&str> = manifests().filter_map(|manifest| value(&manifest.text, "name")).collect();
    assert_no_complaints(&lock_complaints(&file("Cargo.lock").text, &own_packages));
}

#[test]
fn every_package_is_under_the_lints_of_the_workspace() {
    let found: Vec<String> = manifests().flat_map(lint_complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_dependency_from_elsewhere_is_found() {
    let entry =
        |source: &str| format!("version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n{source}");
    let judged = |source: &str| lock_complaints(&entry(source), &["sim"]).len();
    assert_eq!(judged(&format!("source = \"{DEFAULT_REGISTRY}\"\n")), 0);
    assert_eq!(judged("source = \"git+https://example.org/a\"\n"), 1);
    assert_eq!(judged("source = \"registry+https://example.org/index\"\n"), 1);
    assert_eq!(judged(""), 1);
    assert!(lock_complaints("[[package]]\nname = \"sim\"\nversion = \"0.1.0\"\n", &["sim"]).is_empty());
}

#[test]
fn a_package_outside_of_the_lints_is_found() {
    let judged = |text: &str| lint_complaints(&TextFile::new("sim/Cargo.toml", text)).len();
    assert_eq!(judged("[package]\nname = \"sim\"\n\n[lints]\nworkspace = true\n"), 0);
    assert_eq!(judged("[package]\nname = \"sim\"\n"), 1);
    assert_eq!(judged("[lints]\nrust = \"warn\"\n"), 1);
}
