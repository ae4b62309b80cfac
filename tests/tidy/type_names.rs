//! One name for one thing: within a crate a type's name is defined once.

use std::collections::BTreeMap;

use super::rust_code::{code_only, production_code};
use super::tree::{TextFile, assert_no_complaints, files_with_extension};

/// Packages that do not follow the rule yet, and how many names they define twice. A number may fall and never rise.
const ALLOWED: [(&str, usize); 0] = [];

/// The package that a file of production code belongs to.
fn package(source: &TextFile) -> Option<&str> {
    let (package, _) = source.path.split_once("/src/")?;
    (!source.is_test_code()).then_some(package)
}

/// The types that a file defines at its top level. What lies deeper is an associated type, or local to a function.
fn defined_types(source: &TextFile) -> Vec<String> {
    let code = production_code(&code_only(&source.text));
    let top_level = code.lines().filter(|line| !line.starts_with([' ', '\t']));
    top_level
        .filter_map(|line| {
            let words: Vec<&str> = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let at = words.iter().position(|word| matches!(*word, "struct" | "enum" | "trait" | "type"))?;
            words.get(at + 1).map(|name| (*name).to_owned())
        })
        .collect()
}

fn complaints<'f>(sources: impl Iterator<Item = &'f TextFile>, allowed: &[(&str, usize)]) -> Vec<String> {
    let mut defined: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for source in sources {
        let Some(package) = package(source) else { continue };
        for name in defined_types(source) {
            defined.entry((package, name)).or_default().push(&source.path);
        }
    }
    defined.retain(|_, paths| paths.len() > 1);
    let mut by_package: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((package, name), paths) in &defined {
        by_package.entry(package).or_default().push(format!("`{name}` in {}", paths.join(" and ")));
    }
    let mut found = Vec::new();
    for (package, doubled) in &by_package {
        let may_be = allowed.iter().find(|(name, _)| name == package).map_or(0, |(_, count)| *count);
        if doubled.len() > may_be {
            found.push(format!(
                "{package} defines {} type names twice, at most {may_be}: {}; give each thing a name of its own",
                doubled.len(),
                doubled.join(", ")
            ));
        }
    }
    for (package, may_be) in allowed {
        let is = by_package.get(package).map_or(0, Vec::len);
        if is < *may_be {
            found.push(format!("type_names.rs: {package} defines {is} type names twice; lower the entry"));
        }
    }
    found
}

#[test]
fn a_type_name_is_defined_once_in_a_crate() {
    assert_no_complaints(&complaints(files_with_extension("rs"), &ALLOWED));
}

#[test]
fn a_type_name_that_is_defined_twice_is_found() {
    let one = TextFile::new("crates/a/src/one.rs", "pub(crate) struct Page {\n    type Deeper = u8;\n}\n");
    let other = TextFile::new("crates/a/src/other.rs", "/// struct One\nenum Page {}\n");
    let elsewhere = TextFile::new("crates/b/src/one.rs", "struct Page;\n");
    assert!(complaints([&one, &elsewhere].into_iter(), &[]).is_empty());
    let found = complaints([&one, &other].into_iter(), &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`Page` in crates/a/src/one.rs and crates/a/src/other.rs"), "{found:?}");
    assert!(complaints([&one, &other].into_iter(), &[("crates/a", 1)]).is_empty());
    assert_eq!(complaints([&one].into_iter(), &[("crates/a", 1)]).len(), 1);
}
