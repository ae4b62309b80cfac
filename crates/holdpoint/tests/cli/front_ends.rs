//! Real clients of front-end protocols, from npm, against the real program. Their stories are in `tests/front_ends`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::Folder;
use crate::server::Server;

/// A release from the middle of the v6 line, the newest v6, and the newest v7.
const AI_SDK_RELEASES: [&str; 3] = ["ai-6-middle", "ai-6", "ai-7"];
/// The newest 1.0, and the one before 1.0 that CopilotKit uses.
const AG_UI_RELEASES: [&str; 2] = ["ag-ui-client-1", "ag-ui-client-0"];
/// Through its runtime for Node, and without it over both of its transports.
const COPILOT_KIT_TOPOLOGIES: [&str; 3] = ["runtime", "direct", "single"];
const KEY: &str = "token-page";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front_ends")
}

/// A folder with the configuration of these tests.
fn configured() -> Folder {
    let folder = Folder::new();
    for file in ["holdpoint.toml", "script.json"] {
        std::fs::copy(sources().join(file), folder.path().join(file)).expect("the file can be copied");
    }
    std::fs::create_dir(folder.path().join("written")).expect("a folder can be made");
    folder
}

/// Runs a script of `tests/front_ends` and prints what it prints.
#[track_caller]
fn run(client: &str, script: &str, arguments: &[&str]) {
    let mut command = Command::new(sources().join("run"));
    let ended = command.args([client, script]).args(arguments).output().expect("the script can be run");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    println!("{arguments:?}\n{text}");
    assert!(ended.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn every_story_of_the_ai_sdk_is_the_same_with_three_releases() {
    let folder = configured();
    let server = Server::start(folder.path(), &["serve"]);
    let url = format!("http://{}", server.address());
    for release in AI_SDK_RELEASES {
        run("ai_sdk", "stories.mjs", &[release, &url, KEY, "."]);
    }
}

#[test]
fn every_story_of_ag_ui_is_the_same_with_both_dialects() {
    let folder = configured();
    let server = Server::start(folder.path(), &["serve"]);
    let url = format!("http://{}", server.address());
    for release in AG_UI_RELEASES {
        run("ag_ui", "stories.mjs", &[release, &url, KEY]);
    }
}

#[test]
fn a_page_of_the_ai_sdk_approves_after_the_server_was_killed_and_started_again() {
    let folder = configured();
    let kept = folder.path().to_str().expect("the path is text").to_owned();
    let server = Server::start(folder.path(), &["serve"]);
    for release in AI_SDK_RELEASES {
        let url = format!("http://{}", server.address());
        run("ai_sdk", "stories.mjs", &[release, &url, KEY, &kept, "hold"]);
    }
    server.kill();
    let server = Server::start(folder.path(), &["serve"]);
    for release in AI_SDK_RELEASES {
        let url = format!("http://{}", server.address());
        run("ai_sdk", "stories.mjs", &[release, &url, KEY, &kept, "after-restart"]);
    }
}

#[test]
fn every_story_of_copilot_kit_is_the_same_with_and_without_its_runtime() {
    let folder = configured();
    let server = Server::start(folder.path(), &["serve"]);
    let url = format!("http://{}", server.address());
    for topology in COPILOT_KIT_TOPOLOGIES {
        run("copilot_kit", "stories.mjs", &[topology, &url, KEY]);
    }
}

#[test]
fn pages_of_copilot_kit_approve_after_the_server_was_killed_and_started_again() {
    let folder = configured();
    let server = Server::start(folder.path(), &["serve"]);
    let address = server.address().to_owned();
    let mut command = Command::new(sources().join("run"));
    command.args(["copilot_kit", "restart.mjs", &format!("http://{address}"), KEY]);
    let mut pages =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the script can be run");
    let mut out = BufReader::new(pages.stdout.take().expect("it has a standard output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("it prints text");
    assert_eq!(line, "held\n");

    // The pages know one address.
    server.kill();
    let _server = Server::start(folder.path(), &["serve", "--listen", &address]);
    pages.stdin.take().expect("it has a standard input").write_all(b"started\n").expect("it reads");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("it prints text");
    println!("{text}");
    assert!(pages.wait().expect("it can be waited for").success(), "{text}");
}
