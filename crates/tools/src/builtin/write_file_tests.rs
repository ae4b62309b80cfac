//! Tests of `write_file`: what is written to its folder, and that nothing is written outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::tool::{Outcome, Tool, ToolAnswer};
use serde_json::json;

use super::tests::{error, request, success};
use super::{Options, builtin};

/// Scratch space of one test: the tool's folder and the folder around it.
struct Scratch {
    around: PathBuf,
    tool: Arc<dyn Tool>,
}

impl Scratch {
    fn new(test: &str) -> Self {
        let around = std::env::temp_dir().join(format!("holdpoint-write-file-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&around);
        fs::create_dir_all(&around).unwrap();
        let tool = builtin("write_file", &Options { folder: Some(around.join("folder")) }).unwrap();
        Self { around, tool }
    }

    fn folder(&self) -> PathBuf {
        let folder = self.around.join("folder");
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    async fn write(&self, path: &str, text: &str) -> Outcome {
        self.tool.call(request("write_file", json!({"path": path, "text": text}))).await
    }

    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.around, &self.around, &mut found);
        found.sort();
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            list(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.around);
    }
}

fn refusal(outcome: &Outcome) -> &str {
    let Outcome::Answered(ToolAnswer::Error { message }) = outcome else {
        panic!("not refused: {outcome:?}")
    };
    message
}

#[tokio::test]
async fn a_file_is_written_with_the_folders_it_needs_and_no_draft_stays() {
    let scratch = Scratch::new("new");

    let written = scratch.write("notes/./2026/today.txt", "grüße").await;

    assert_eq!(written, success(json!({"path": "notes/./2026/today.txt", "bytes": 7})));
    assert_eq!(scratch.files(), ["folder/notes/2026/today.txt"]);
    assert_eq!(fs::read_to_string(scratch.folder().join("notes/2026/today.txt")).unwrap(), "grüße");
}

#[tokio::test]
async fn a_file_that_is_there_is_replaced_as_a_whole() {
    let scratch = Scratch::new("replace");

    scratch.write("a.txt", "a long first text").await;
    let written = scratch.write("a.txt", "short").await;

    assert_eq!(written, success(json!({"path": "a.txt", "bytes": 5})));
    assert_eq!(fs::read_to_string(scratch.folder().join("a.txt")).unwrap(), "short");
}

#[tokio::test]
async fn the_draft_of_a_lost_attempt_is_not_in_the_way() {
    let scratch = Scratch::new("lost-draft");
    fs::write(scratch.folder().join(".holdpoint-0a1b-1.draft"), "half a te").unwrap();

    assert_eq!(scratch.write("a.txt", "whole").await, success(json!({"path": "a.txt", "bytes": 5})));
    assert_eq!(scratch.files(), ["folder/a.txt"]);
}

#[tokio::test]
async fn a_path_out_of_the_folder_is_refused_and_nothing_is_created() {
    let scratch = Scratch::new("words");
    let cases = [
        ("../a.txt", "`../a.txt` contains `..`; use a path inside the tool's folder"),
        ("notes/../a.txt", "`notes/../a.txt` contains `..`; use a path inside the tool's folder"),
        ("/etc/a.txt", "`/etc/a.txt` is absolute; use a path relative to the tool's folder"),
        ("", "`` names no file; use a relative path like notes/today.txt"),
        (".", "`.` names no file; use a relative path like notes/today.txt"),
        ("notes/", "`notes/` names no file; use a relative path like notes/today.txt"),
    ];

    for (path, expected) in cases {
        assert_eq!(scratch.write(path, "x").await, error(expected));
    }
    assert!(!scratch.around.join("folder").exists());
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_file_and_the_reverse_are_refused() {
    let scratch = Scratch::new("kinds");
    scratch.write("notes/a.txt", "kept").await;

    assert_eq!(scratch.write("notes", "x").await, error("`notes` is a folder; name a file in it"));
    assert_eq!(
        scratch.write("notes/a.txt/b.txt", "x").await,
        error("`notes/a.txt/b.txt` leads through a.txt, which is not a folder")
    );
    assert_eq!(scratch.files(), ["folder/notes/a.txt"]);
    assert_eq!(fs::read_to_string(scratch.folder().join("notes/a.txt")).unwrap(), "kept");
}

#[cfg(unix)]
#[tokio::test]
async fn links_that_lead_out_are_refused_and_what_they_lead_to_is_untouched() {
    use std::os::unix::fs::symlink;

    let scratch = Scratch::new("links-out");
    let outside = scratch.around.join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "kept").unwrap();
    symlink(&outside, scratch.folder().join("door")).unwrap();
    symlink("../outside/secret.txt", scratch.folder().join("window.txt")).unwrap();
    symlink("../outside/absent.txt", scratch.folder().join("crack.txt")).unwrap();

    for path in ["door/secret.txt", "door/new.txt", "door/deep/new.txt", "window.txt"] {
        let expected =
            format!("`{path}` leads out of the tool's folder through a link; use a path without it");
        assert_eq!(scratch.write(path, "x").await, error(&expected));
    }
    let outcome = scratch.write("crack.txt", "x").await;
    let said = refusal(&outcome);
    assert!(said.starts_with("`crack.txt` leads through a link that cannot be followed: "), "{said}");

    let left = ["folder/crack.txt", "folder/door", "folder/window.txt", "outside/secret.txt"];
    assert_eq!(scratch.files(), left);
    assert_eq!(fs::read_to_string(outside.join("secret.txt")).unwrap(), "kept");
}

#[cfg(unix)]
#[tokio::test]
async fn links_that_stay_inside_are_followed_and_stay_links() {
    use std::os::unix::fs::symlink;

    let scratch = Scratch::new("links-inside");
    fs::create_dir_all(scratch.folder().join("real")).unwrap();
    fs::write(scratch.folder().join("real/a.txt"), "old").unwrap();
    symlink("real", scratch.folder().join("alias")).unwrap();
    symlink("real/a.txt", scratch.folder().join("a.txt")).unwrap();

    assert_eq!(scratch.write("alias/b.txt", "b").await, success(json!({"path": "alias/b.txt", "bytes": 1})));
    assert_eq!(scratch.write("a.txt", "new").await, success(json!({"path": "a.txt", "bytes": 3})));

    assert_eq!(fs::read_to_string(scratch.folder().join("real/b.txt")).unwrap(), "b");
    assert_eq!(fs::read_to_string(scratch.folder().join("real/a.txt")).unwrap(), "new");
    assert!(scratch.folder().join("a.txt").is_symlink());
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_planted_as_the_draft_is_replaced_and_not_followed() {
    use std::os::unix::fs::symlink;

    let scratch = Scratch::new("planted-draft");
    fs::write(scratch.around.join("secret.txt"), "kept").unwrap();
    symlink("../secret.txt", scratch.folder().join(".holdpoint-0a1b-1.draft")).unwrap();

    assert_eq!(scratch.write("a.txt", "x").await, success(json!({"path": "a.txt", "bytes": 1})));

    assert_eq!(fs::read_to_string(scratch.around.join("secret.txt")).unwrap(), "kept");
    assert_eq!(scratch.files(), ["folder/a.txt", "secret.txt"]);
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_begins_writes_nothing() {
    let scratch = Scratch::new("cancelled");
    let request = request("write_file", json!({"path": "a.txt", "text": "x"}));
    request.cancelled.cancel();

    let outcome = scratch.tool.call(request).await;

    let why = "cancelled before it began".to_owned();
    assert_eq!(outcome, Outcome::NotSent { why, retry_after_ms: None });
    assert_eq!(scratch.files(), [""; 0]);
}

#[tokio::test]
async fn a_key_with_the_signs_of_a_path_cannot_move_the_draft() {
    let scratch = Scratch::new("key");
    let mut request = request("write_file", json!({"path": "a.txt", "text": "x"}));
    request.idempotency_key = "../../".repeat(100) + &"a".repeat(1000);

    let outcome = scratch.tool.call(request).await;

    assert_eq!(outcome, success(json!({"path": "a.txt", "bytes": 1})));
    assert_eq!(scratch.files(), ["folder/a.txt"]);
}
