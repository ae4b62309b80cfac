//! The picture of the architecture in README.md shows how the crates depend on each other.

use std::collections::BTreeSet;

use super::tree::{TextFile, assert_no_complaints, file, files};

/// A crate and one that it uses.
type Use = (String, String);

/// The folder of a crate is its name in the picture: the package of `crates/http` has a longer one.
fn crate_name(dependency: &str) -> &str {
    dependency.strip_prefix("holdpoint-").unwrap_or(dependency)
}

/// The crates of this workspace that a manifest names under `[dependencies]`.
fn declared_uses(manifest: &TextFile) -> Vec<Use> {
    let Some(user) = manifest.path.strip_prefix("crates/").and_then(|path| path.split('/').next()) else {
        return Vec::new();
    };
    let section =
        manifest.text.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let own = |line: &&str| line.contains("workspace = true") || line.contains("path = ");
    let names = section.lines().filter(own).filter_map(|line| line.split_once(" = "));
    let used = names.map(|(name, _)| crate_name(name)).filter(|name| is_crate(name));
    used.map(|name| (user.to_owned(), name.to_owned())).collect()
}

fn is_crate(name: &str) -> bool {
    files().iter().any(|file| file.path == format!("crates/{name}/Cargo.toml"))
}

/// The solid arrows of the flowchart. Dotted ones lead out of the process.
fn drawn_uses(page: &str) -> BTreeSet<Use> {
    let chart = page.split_once("```mermaid\nflowchart").map_or("", |(_, rest)| rest);
    let chart = chart.split_once("```").map_or("", |(chart, _)| chart);
    let name = |node: &str| node.trim().split(['[', '(']).next().unwrap_or_default().to_owned();
    let arrows = chart.lines().filter_map(|line| line.split_once(" --> "));
    arrows.map(|(from, to)| (name(from), name(to))).collect()
}

/// Adds what is used by way of another crate, so that a picture need not draw every arrow.
fn with_indirect(mut uses: BTreeSet<Use>) -> BTreeSet<Use> {
    loop {
        let indirect: Vec<Use> = uses
            .iter()
            .flat_map(|(user, used)| {
                uses.iter()
                    .filter(move |(next, _)| next == used)
                    .map(|(_, last)| (user.clone(), last.clone()))
            })
            .collect();
        let before = uses.len();
        uses.extend(indirect);
        if uses.len() == before {
            return uses;
        }
    }
}

fn complaints(drawn: BTreeSet<Use>, declared: BTreeSet<Use>) -> Vec<String> {
    let (drawn, declared) = (with_indirect(drawn), with_indirect(declared));
    let missing =
        declared.difference(&drawn).map(|(user, used)| format!("README.md: no arrow from {user} to {used}"));
    let untrue =
        drawn.difference(&declared).map(|(user, used)| format!("README.md: {user} does not use {used}"));
    missing.chain(untrue).collect()
}

#[test]
fn the_picture_of_the_architecture_shows_which_crate_uses_which() {
    let manifests = files().iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let declared: BTreeSet<Use> = manifests.flat_map(declared_uses).collect();
    assert!(declared.len() > 8, "the manifests are read");
    assert_no_complaints(&complaints(drawn_uses(&file("README.md").text), declared));
}

#[test]
fn an_arrow_too_many_and_one_too_few_are_found() {
    let uses =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let page = "```mermaid\nflowchart TD\n    a[\"A\"] --> b\n    b --> c[\"C\"]\n    c -.-> d\n```\n";
    assert!(complaints(drawn_uses(page), uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(
        complaints(drawn_uses(page), uses(&[("a", "b"), ("a", "c")])),
        ["README.md: b does not use c"]
    );
    assert_eq!(
        complaints(drawn_uses(page), uses(&[("a", "b"), ("b", "c"), ("d", "a")])),
        [
            "README.md: no arrow from d to a",
            "README.md: no arrow from d to b",
            "README.md: no arrow from d to c"
        ]
    );
}
