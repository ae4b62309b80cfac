//! File names and type names are specific enough to show what does not belong under them.

use super::rust_code::code_only;
use super::tree::{TextFile, assert_no_complaints, files_with_extension};

/// A file or folder with one of these names collects code that belongs elsewhere.
const VAGUE_FILE_NAMES: [&str; 14] = [
    "common", "handler", "handlers", "helper", "helpers", "manager", "managers", "misc", "service",
    "services", "shared", "types", "util", "utils",
];

/// A type name that ends with one of these words does not say what the type is for.
const VAGUE_TYPE_ENDINGS: [&str; 8] =
    ["Handler", "Handlers", "Helper", "Helpers", "Manager", "Managers", "Util", "Utils"];

fn file_name_complaints(file: &TextFile) -> Vec<String> {
    file.path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part))
        // `string_utils` is as vague as `utils`.
        .filter(|name| VAGUE_FILE_NAMES.contains(&name.rsplit(['_', '-']).next().unwrap_or(name)))
        .map(|name| {
            format!("{}: `{name}` does not say what may not go in; name it after its subject", file.path)
        })
        .collect()
}

fn type_name_complaints(file: &TextFile) -> Vec<String> {
    let code = code_only(&file.text);
    let words: Vec<&str> =
        code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .filter(|pair| matches!(pair[0], "struct" | "enum" | "trait" | "type" | "union"))
        .map(|pair| pair[1])
        .filter(|name| VAGUE_TYPE_ENDINGS.iter().any(|ending| name.ends_with(ending)))
        .map(|name| format!("{}: `{name}` names a role, not a thing; say what it is", file.path))
        .collect()
}

#[test]
fn no_file_has_a_vague_name() {
    let found: Vec<String> = files_with_extension("rs").flat_map(file_name_complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn no_type_has_a_vague_name() {
    let found: Vec<String> = files_with_extension("rs").flat_map(type_name_complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_vague_file_name_is_found() {
    for bad in ["src/utils.rs", "src/string_utils.rs", "src/helpers/mod.rs", "crates/hold-types/src/lib.rs"] {
        assert_eq!(file_name_complaints(&TextFile::new(bad, "")).len(), 1, "{bad}");
    }
    assert!(file_name_complaints(&TextFile::new("src/utility_bill.rs", "")).is_empty());
}

#[test]
fn a_vague_type_name_is_found() {
    for bad in ["pub struct RunManager;", "enum ToolHandler {}", "trait Helper {}", "type TimeUtil = u8;"] {
        assert_eq!(type_name_complaints(&TextFile::new("src/run.rs", bad)).len(), 1, "{bad}");
    }
    assert!(
        type_name_complaints(&TextFile::new("src/run.rs", "struct Lease; // not a LeaseManager")).is_empty()
    );
}
