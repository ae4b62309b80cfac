//! Every link in a document leads somewhere: to a file of this tree, and to a heading that is there.

use super::markdown::parse;
use super::tree::{TextFile, assert_no_complaints, files};

fn complaints(document: &TextFile, tree: &[TextFile]) -> Vec<String> {
    let mut found = Vec::new();
    for (line, target) in parse(&document.text).links {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (relative, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let Some(path) = resolve(&document.path, relative) else {
            found.push(format!("{}:{line}: `{target}` leaves the repository", document.path));
            continue;
        };
        let folder = format!("{path}/");
        let linked = tree.iter().find(|file| file.path == path);
        if linked.is_none() && !tree.iter().any(|file| file.path.starts_with(&folder)) {
            found.push(format!("{}:{line}: `{target}` does not exist", document.path));
        } else if !anchor.is_empty()
            && !linked.is_some_and(|file| parse(&file.text).anchors.iter().any(|known| known == anchor))
        {
            found.push(format!("{}:{line}: `{target}` names no heading of {path}", document.path));
        }
    }
    found
}

/// The path from the root, or nothing where the link would leave it.
fn resolve(document: &str, relative: &str) -> Option<String> {
    if relative.is_empty() {
        return Some(document.to_owned());
    }
    if relative.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn every_link_leads_somewhere() {
    let documents = files().iter().filter(|file| file.has_extension("md"));
    let found: Vec<String> = documents.flat_map(|document| complaints(document, files())).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let tree =
        [TextFile::new("README.md", "# Read me\n"), TextFile::new("docs/rules.md", "# A rule, stated\n")];
    let from_docs = |text: &str| complaints(&TextFile::new("docs/index.md", text), &tree);
    for good in [
        "[a](rules.md)",
        "[a](./rules.md#a-rule-stated)",
        "[a](../README.md)",
        "[a](../docs)",
        "[a](../docs/)",
        "[a](https://example.org/gone)",
        "`[a](gone.md)`",
    ] {
        assert!(from_docs(good).is_empty(), "{good}");
    }
    for bad in [
        "[a](gone.md)",
        "[a](rules.md#gone)",
        "[a](#gone)",
        "[a](../../README.md)",
        "[a](/README.md)",
        "[a]: gone.md",
        "[a](../doc)",
    ] {
        assert_eq!(from_docs(bad).len(), 1, "{bad}");
    }
}
