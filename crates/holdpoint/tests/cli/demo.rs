//! `holdpoint demo`: the commands that it prints work.

use std::process::Command;

use serde_json::Value;

use crate::program::{Folder, state_home};
use crate::server::{Server, call};

const DEMO: [&str; 5] = ["demo", "--listen", "127.0.0.1:0", "--folder", "try"];

/// The curl commands that it prints: list, approve, show.
fn commands(server: &Server) -> Vec<String> {
    printed(server).curl
}

struct Printed {
    curl: Vec<String>,
    /// The command that approves with the program itself.
    approve: String,
}

/// Reads up to the last line of the instructions.
fn printed(server: &Server) -> Printed {
    let (mut curl, mut approve) = (Vec::new(), String::new());
    loop {
        let line = server.line();
        if line.starts_with("This window reports") {
            // They are printed in the order list, show, approve.
            curl.swap(1, 2);
            return Printed { curl, approve };
        }
        if line.starts_with("curl ") {
            curl.push(line);
        } else if line.contains(" approvals approve ") {
            approve = line;
        }
    }
}

/// Does what curl would do with one of the printed lines.
#[track_caller]
fn curl(line: &str) -> (u16, Value) {
    let (line, header) = match line.split_once(" -H ") {
        Some((line, header)) => (line, header.trim_matches('\'').split_once(": ")),
        None => (line, None),
    };
    let words: Vec<&str> = line.split(' ').collect();
    let (method, url) = match words.as_slice() {
        ["curl", url] => ("GET", *url),
        ["curl", "-X", method, url] => (*method, *url),
        _ => panic!("{line:?} is not a curl command that this test supports"),
    };
    let rest = url.strip_prefix("http://").expect("an address");
    let (address, path) = rest.split_once('/').expect("a path");
    let headers: Vec<(&str, &str)> = [("accept", "*/*")].into_iter().chain(header).collect();
    call(address, method, &format!("/{path}"), &headers, "")
}

#[test]
fn the_three_commands_of_the_demo_work() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &DEMO);
    let lines = commands(&server);
    let [list, approve, show] = lines.as_slice() else { panic!("{lines:?}") };
    let minutes = folder.path().join("try/written/minutes.txt");

    let (code, listed) = curl(list);
    assert_eq!(code, 200, "{listed}");
    let held = &listed["approvals"][0];
    assert_eq!(listed["approvals"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!((held["tool"].as_str(), held["status"].as_str()), (Some("write_file"), Some("pending")));
    let (code, run) = curl(show);
    assert_eq!((code, run["status"].as_str()), (200, Some("waiting_approval")), "{run}");
    assert!(!minutes.exists(), "nothing is written before it is approved");

    let (bare, _) = approve.split_once(" -H ").expect("it sends the server's token");
    assert_eq!(curl(bare).0, 401, "without the token nothing is approved");
    assert_eq!(curl(show).1["status"], "waiting_approval");
    let (code, approved) = curl(approve);
    assert_eq!((code, approved["id"].as_str()), (200, held["id"].as_str()), "{approved}");
    let id = run["id"].as_str().expect("it has an id");
    server.run_with(id, "completed");
    assert_eq!(curl(show).1["status"], "completed");
    assert_eq!(std::fs::read_to_string(&minutes).ok().as_deref(), Some("42 votes were cast.\n"));
}

#[test]
fn a_demo_in_a_folder_continues_where_it_was_killed() {
    let folder = Folder::new();
    let first = Server::start(folder.path(), &DEMO);
    let before = commands(&first);
    first.kill();
    let second = Server::start(folder.path(), &DEMO);
    let after = commands(&second);
    let path = |line: &str| {
        let (_, path) = line.split_once("/v1/").expect("a path");
        path.split(' ').next().map(str::to_owned)
    };
    assert_eq!(path(&before[1]), path(&after[1]), "the same approval");
    assert_eq!(curl(&after[1]).0, 200);
}

#[test]
fn a_demo_without_a_folder_leaves_nothing() {
    let folder = Folder::new();
    // The program puts temporary files into the folder that this variable names.
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).expect("it can be made");
    let variable = [("TMPDIR", temporary.as_os_str())];
    let server = Server::start_with(folder.path(), &["demo", "--listen", "127.0.0.1:0"], &variable);
    assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 1);
    server.signal("INT");
    assert_eq!(server.ended().0, Some(0));
    assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 0);
    assert_eq!(folder.names(), ["temporary"]);
}

#[test]
fn the_command_of_the_program_approves_and_the_demo_reports_it() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &DEMO);
    let Printed { curl: lines, approve } = printed(&server);
    let digest = curl(&lines[0]).1["approvals"][0]["arguments_digest"].as_str().expect("a digest").to_owned();
    // Without a terminal the command cannot ask for confirmation.
    let script = format!("{approve} --yes --expect-digest {digest}");
    let approved = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", state_home())
        .env_remove("HOLDPOINT_TOKEN")
        .output()
        .expect("a shell starts");
    assert!(approved.status.success(), "{script}: {approved:?}");
    let line = server.line();
    assert!(line.starts_with("approved by ") && line.ends_with(", file written to try/written"), "{line}");
    assert!(
        folder.path().join("try/written/minutes.txt").exists(),
        "the file exists when the line is printed"
    );
}

#[test]
fn the_demo_reports_a_rejection_and_no_request() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &DEMO);
    let lines = commands(&server);
    assert_eq!(curl(&lines[2]).0, 200);
    assert_eq!(curl(&lines[1].replace("/approve", "/reject")).0, 200);
    let line = server.line();
    assert!(line.starts_with("rejected by ") && line.ends_with(", no file was written"), "{line}");
    assert!(!folder.path().join("try/written/minutes.txt").exists());
    server.signal("INT");
    let (code, log) = server.ended();
    assert_eq!(code, Some(0));
    assert!(!log.iter().any(|line| line.contains("answered")), "no line per request: {log:#?}");
}
