//! The pages for users are correct: the test runs their commands in order and compares the output they show.
//!
//! The first line of a fenced block says what the block is:
//!
//! | first line | what the test does with it |
//! |---|---|
//! | `sh` | run by one shell for the whole page, which stops at the first command that fails |
//! | `sh server` | started, and runs until the end of the page or the next such block |
//! | `sh in-the-tree` | the same as `sh`, in the folder of the source |
//! | `toml NAME`, `json NAME`, `python NAME`, `typescript NAME`, `html NAME` | written into a file of that name; every `holdpoint.toml` must pass `holdpoint check` |
//! | `json output`, `text output` | what the block before it, or the server, has printed; `…` matches anything |
//! | `json`, `text`, `rust`, `mermaid` | for the reader: `json` must be JSON, `rust` is run as a test of the documentation, and the machine's tests compare `mermaid` with its transition tables |
//!
//! A reader replaces `RUN_ID` and `APPROVAL_ID` with their own ids. The test inserts the last ids that it saw.
//! In `Bearer TOKEN` it inserts the token of a server without `[auth]`. Other programs of a page listen on port 9100,
//! 9102 or 9103; the test replaces each of them with a free port.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a wrong page fails the test"
)]

mod block;
mod expected;
mod shell;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use block::{Block, Does, blocks};
use shell::Reader;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tree is there")
}

/// Runs every command of the page.
fn follow(page: &str, commands_min: usize) {
    follow_with(page, commands_min, &[]);
}

/// The same, with these programs installed under these names.
fn follow_with(page: &str, commands_min: usize, programs: &[(&str, PathBuf)]) {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let blocks = blocks(page, &text).unwrap_or_else(|why| panic!("{why}"));
    let mut reader = Reader::new(page);
    programs.iter().for_each(|(name, program)| reader.install(name, program));
    let mut commands = 0;
    for block in &blocks {
        commands += usize::from(matches!(block.does, Does::Run { .. } | Does::Serve));
        reader.take(block);
    }
    reader.check_configuration();
    assert!(commands >= commands_min, "{page} has only {commands} blocks of commands");
}

#[test]
fn the_first_page() {
    follow("README.md", 2);
}

#[test]
fn getting_started() {
    follow("docs/getting-started.md", 4);
}

#[test]
fn the_http_interface() {
    follow("docs/http.md", 8);
}

#[test]
fn approvals() {
    follow("docs/approvals.md", 6);
}

#[test]
fn the_command_line() {
    follow("docs/cli.md", 9);
}

#[test]
fn an_agent_that_delegates() {
    follow("docs/delegation.md", 5);
}

#[test]
fn the_configuration() {
    follow("docs/configuration.md", 1);
}

#[test]
fn real_models() {
    found("python");
    follow("docs/models.md", 3);
}

#[test]
fn a_tool_in_python() {
    found("python");
    follow("docs/tool-in-python.md", 6);
}

#[test]
fn a_tool_in_typescript() {
    follow_with("docs/tool-in-typescript.md", 4, &[("node", found("node"))]);
}

#[test]
fn hooks_in_python_and_typescript() {
    found("python");
    follow_with("docs/hooks.md", 15, &[("node", found("node"))]);
}

#[test]
fn web_pages() {
    found("python");
    follow("docs/browser.md", 12);
}

#[test]
fn rules_on_arguments() {
    follow("docs/rules-on-arguments.md", 4);
}

/// The program that the script of this name finds or installs.
fn found(name: &str) -> PathBuf {
    let script = root().join(".ci").join(name);
    let found = Command::new(&script).stderr(Stdio::inherit()).output().expect("the script can be run");
    assert!(found.status.success(), "{} found nothing", script.display());
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
}

#[test]
fn structured_output() {
    follow("docs/structured-output.md", 4);
}

#[test]
fn tools_over_http() {
    follow("docs/http-tools.md", 4);
}

#[test]
fn operations() {
    follow("docs/operations.md", 3);
}

/// Checks all pages, even those that are not run: a block of unknown type would never be checked.
#[test]
fn every_block_of_every_page_declares_its_purpose() {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("the folder can be read") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.display().to_string());
            }
        }
    }
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(root().join(&page)).expect("the page is there");
        if text.contains("\n```rust\n") {
            let included = format!("include_str!(\"../../../{page}\")");
            assert!(
                include_str!("../../src/lib.rs").contains(&included),
                "{page}: its Rust is never compiled"
            );
        }
        for Block { line, does, text } in blocks(&page, &text).unwrap_or_else(|why| panic!("{why}")) {
            if matches!(does, Does::Show { is_json: true }) {
                let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
                assert!(read.is_ok(), "{page}:{line}: this is no JSON: {read:?}");
            }
        }
    }
}
