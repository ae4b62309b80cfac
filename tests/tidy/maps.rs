//! What lists the tree lists all of it: every crate in the README, every page in the index of the documents. And a page
//! names only source files that exist.

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

/// Rust files that a page names and the tree does not have, whatever folder they are in.
fn missing_files(page: &TextFile, tree: &[TextFile]) -> Vec<String> {
    let spans = page.text.split('`').skip(1).step_by(2);
    let names = spans.filter(|span| span.ends_with(".rs") && !span.contains([' ', '\n', '*', '{', '<']));
    let is_there =
        |name: &str| tree.iter().any(|file| format!("/{}", file.path).ends_with(&format!("/{name}")));
    names.filter(|name| !is_there(name)).map(|name| format!("{}: there is no {name}", page.path)).collect()
}

#[test]
fn pages_name_only_source_files_that_exist() {
    let pages = files().iter().filter(|file| file.has_extension("md") && file.path != "CHANGELOG.md");
    assert_no_complaints(&pages.flat_map(|page| missing_files(page, files())).collect::<Vec<_>>());
}

#[test]
fn a_source_file_that_does_not_exist_is_found() {
    let tree = [TextFile::new("crates/engine/src/node/slots.rs", "")];
    let page = |text: &str| TextFile::new("ARCHITECTURE.md", text);
    assert!(missing_files(&page("See `slots.rs` and `node/slots.rs`."), &tree).is_empty());
    assert_eq!(missing_files(&page("See `place.rs`."), &tree), ["ARCHITECTURE.md: there is no place.rs"]);
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
