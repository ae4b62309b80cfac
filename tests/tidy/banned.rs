//! What no source file may contain, with what to write in its place.

use super::rust_code::{code_only, lines_with_word};
use super::tree::{TextFile, assert_no_complaints, files_with_extension};

const BANNED: [(&str, &str); 5] = [
    ("todo!", "finish it, or leave it out and write it down as an issue"),
    ("unimplemented!", "finish it, or make the case impossible to reach"),
    ("dbg!", "remove it; a lasting message belongs in an error"),
    ("#[ignore", "repair the test or delete it; a test that never runs only looks like one"),
    ("thread::sleep", "advance the clock, or wait for the event itself"),
];

fn complaints(file: &TextFile) -> Vec<String> {
    let code = code_only(&file.text);
    let mut found = Vec::new();
    for (banned, instead) in BANNED {
        for line in lines_with_word(&code, banned) {
            found.push(format!("{}:{line}: `{banned}`: {instead}", file.path));
        }
    }
    found
}

#[test]
fn no_source_contains_what_is_banned() {
    let found: Vec<String> = files_with_extension("rs").flat_map(complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn each_banned_thing_is_found_with_its_line() {
    for (banned, instead) in BANNED {
        let bad = TextFile::new("src/run.rs", &format!("\nfn f() {{ {banned} }}\n"));
        assert_eq!(complaints(&bad), [format!("src/run.rs:2: `{banned}`: {instead}")]);
    }
    let good = TextFile::new("src/run.rs", "// No todo! here.\nlet text = \"dbg!\";\n");
    assert!(complaints(&good).is_empty());
}
