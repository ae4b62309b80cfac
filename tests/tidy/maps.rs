//! What lists the tree lists all of it: every crate in the README, every page in the index of the documents.

use super::tree::{TextFile, assert_no_complaints, file, files};

/// Paths that `map` does not link to, written as it would write them.
fn complaints<'t>(map: &TextFile, wanted: impl Iterator<Item = &'t str>) -> Vec<String> {
    wanted
        .filter(|path| !map.text.contains(&format!("]({path})")))
        .map(|path| format!("{}: it does not link to {path}", map.path))
        .collect()
}

fn crates(tree: &[TextFile]) -> impl Iterator<Item = &str> {
    tree.iter().filter_map(|file| {
        let folder = file.path.strip_suffix("/Cargo.toml")?;
        (folder.strip_prefix("crates/")?.split('/').count() == 1).then_some(folder)
    })
}

fn pages(tree: &[TextFile]) -> impl Iterator<Item = &str> {
    tree.iter().filter_map(|file| {
        let page = file.path.strip_prefix("docs/")?;
        (page != "README.md" && page.ends_with(".md") && !page.contains('/')).then_some(page)
    })
}

#[test]
fn every_crate_is_in_the_readme_and_every_page_in_the_index() {
    let mut found = complaints(file("README.md"), crates(files()));
    found.extend(complaints(file("docs/README.md"), pages(files())));
    assert_no_complaints(&found);
}

#[test]
fn a_crate_and_a_page_that_no_map_has_are_found() {
    let tree = ["crates/engine/Cargo.toml", "crates/a/b/Cargo.toml", "docs/README.md", "docs/http.md"]
        .map(|path| TextFile::new(path, ""));
    let map = |text: &str| TextFile::new("map.md", text);
    assert!(complaints(&map("[a](crates/engine)"), crates(&tree)).is_empty());
    assert_eq!(complaints(&map("[a](crates/machine)"), crates(&tree)).len(), 1);
    assert!(complaints(&map("[a](http.md)"), pages(&tree)).is_empty());
    assert_eq!(complaints(&map("http.md"), pages(&tree)).len(), 1);
}
