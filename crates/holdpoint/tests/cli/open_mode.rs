//! A server without `[auth]`: its token is printed, stored in a file, and found by the commands.

use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::client::{CannedServer, Client, answer, approval};
use crate::program::{CommandOutput, Folder};
use crate::server::{Server, call, configured};

fn held() -> Folder {
    let write =
        json!({"id": "call_0", "name": "write_file", "arguments": {"path": "a.txt", "text": "Hello."}});
    configured(&json!({"rules": [{"when": ".*", "replies": [{"tool_calls": [write]}, {"text": "Done."}]}]}))
}

/// The token file of a server at this address.
fn token_file(state: &Path, address: &str) -> PathBuf {
    let (_, port) = address.rsplit_once(':').expect("a port");
    state.join(format!("holdpoint/127.0.0.1-{port}.token"))
}

#[test]
fn a_token_is_printed_kept_over_restarts_and_needed_to_approve() {
    let (folder, state) = (held(), Folder::new());
    let variables = [("XDG_STATE_HOME", state.path().as_os_str())];
    let mut first = Server::start_with(folder.path(), &["serve"], &variables);
    let line = first.wait_for("");
    let token =
        line.strip_prefix("token: ").unwrap_or_else(|| panic!("after \"listening on\": {line}")).to_owned();
    assert!(first.wait_for("").contains("this mode is for trying"), "it warns at every start");
    let file = token_file(state.path(), first.address());
    assert_eq!(std::fs::read_to_string(&file).ok(), Some(format!("{token}\n")));
    assert_eq!(std::fs::metadata(&file).expect("it is there").mode() & 0o7777, 0o600);

    let run = first.begin("clerk", "Write it.");
    let id = approval(&first.run_with(&run, "waiting_approval"));
    let path = format!("/v1/approvals/{id}/approve");
    let with = |bearer: &str| call(first.address(), "POST", &path, &[("authorization", bearer)], "").0;
    assert_eq!(call(first.address(), "POST", &path, &[], "").0, 401);
    assert_eq!(with("Bearer 00000000000000000000000000000000"), 401);
    assert!(!folder.path().join("written/a.txt").exists(), "nothing is written");

    let address = first.address().to_owned();
    first.kill();
    let mut second = Server::start_with(folder.path(), &["serve", "--listen", &address], &variables);
    assert_eq!(second.wait_for("token: "), line, "the same port has the same token");
    let bearer = format!("Bearer {token}");
    let (code, approved) = call(&address, "POST", &path, &[("authorization", &bearer)], "");
    assert_eq!((code, approved["decided_by"].as_str()), (200, Some("anonymous")), "{approved}");
    second.run_with(&run, "completed");
}

#[test]
fn a_reload_and_the_commands_use_the_token_file() {
    let (folder, state) = (held(), Folder::new());
    let variables = [("XDG_STATE_HOME", state.path().as_os_str())];
    let mut server = Server::start_with(folder.path(), &["serve"], &variables);
    let token = server.wait_for("token: ")["token: ".len()..].to_owned();
    let (_, port) = server.address().rsplit_once(':').expect("a port");
    let bearer = format!("Bearer {token}");
    let reload = |headers: &[(&str, &str)]| call(server.address(), "POST", "/v1/admin/reload", headers, "").0;
    assert_eq!((reload(&[]), reload(&[("authorization", &bearer)])), (401, 200));
    assert_eq!(reload(&[("authorization", &bearer)]), 200, "a reload does not change the token");

    // All names of this machine lead to the same token.
    for host in ["127.0.0.1", "localhost", "127.0.0.1"] {
        let run = server.begin("clerk", "Write it.");
        let id = approval(&server.run_with(&run, "waiting_approval"));
        let (_, shown) = server.get(&format!("/v1/approvals/{id}"));
        let digest = shown["arguments_digest"].as_str().expect("a digest");
        let approve = |variables: &[(&str, &OsStr)]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
            command.args(["approvals", "approve", &id, "--yes", "--expect-digest", digest]);
            command.envs(variables.iter().copied());
            command.env("HOLDPOINT_URL", format!("http://{host}:{port}"));
            CommandOutput::capture(&mut command)
        };
        let elsewhere = Folder::new();
        let lost =
            approve(&[("XDG_STATE_HOME", elsewhere.path().as_os_str()), ("HOLDPOINT_TOKEN", OsStr::new(""))]);
        assert!(lost.code == Some(1) && lost.err.starts_with("UNAUTHORIZED: "), "{lost:?}");
        assert!(
            lost.err.contains(&format!("127.0.0.1-{port}.token")),
            "the error names the token file: {lost:?}"
        );
        let wrong = approve(&[variables[0], ("HOLDPOINT_TOKEN", OsStr::new("another"))]);
        assert!(
            wrong.err.starts_with("UNAUTHORIZED: the token that was sent is not this server's token"),
            "the variable wins: {wrong:?}"
        );
        assert!(
            wrong.err.contains(&format!("127.0.0.1-{port}.token")) && !wrong.err.contains("another"),
            "the error names the file with the right token: {wrong:?}"
        );
        assert!(wrong.err.contains("or unset it to use the token that the server"), "{wrong:?}");
        assert!(!lost.err.contains("or unset it"), "there is no other token: {lost:?}");
        let found = approve(&[variables[0], ("HOLDPOINT_TOKEN", OsStr::new(""))]);
        assert_eq!(found.code, Some(0), "{found:?}");
        server.run_with(&run, "completed");
    }
}

/// One command, without `HOLDPOINT_TOKEN`.
fn asked(address: &str, state: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.args(arguments).env("HOLDPOINT_URL", format!("http://{address}"));
    CommandOutput::capture(command.env_remove("HOLDPOINT_TOKEN").env("XDG_STATE_HOME", state))
}

#[test]
fn the_token_of_the_token_file_is_sent_only_with_decisions() {
    let state = Folder::new();
    DirBuilder::new().mode(0o700).create(state.path().join("holdpoint")).expect("a folder");
    let token = "0123456789abcdef0123456789abcdef";
    let refusal = r#"{"error":{"code":"UNAUTHORIZED","message":"no","details":{}}}"#;
    for (arguments, is_sent) in [
        (&["runs", "list"][..], false),
        (&["runs", "show", "run_0"], false),
        (&["runs", "watch", "run_0"], false),
        (&["runs", "interrupt", "run_0"], false),
        (&["replay", "run_0"], false),
        (&["approvals", "list"], false),
        (&["approvals", "show", "apr_0"], false),
        (&["approvals", "approve", "apr_0", "--yes", "--expect-digest", "d"], true),
        (&["approvals", "reject", "apr_0"], true),
        (&["approvals", "answer", "apr_0", "--choice", "retry"], true),
    ] {
        let canned_server = CannedServer::answering(vec![answer("401 Unauthorized", refusal)]);
        let file = token_file(state.path(), &canned_server.address);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file)
            .expect("a file");
        file.write_all(token.as_bytes()).expect("it is written");
        let said = asked(&canned_server.address, state.path(), arguments);
        assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
        assert_eq!(canned_server.next_request().contains(token), is_sent, "{arguments:?}");
    }
}

#[test]
fn a_token_that_other_users_could_know_is_refused() {
    let (folder, state) = (held(), Folder::new());
    let variables = [("XDG_STATE_HOME", state.path().as_os_str())];
    let mut server = Server::start_with(folder.path(), &["serve"], &variables);
    let token = server.wait_for("token: ")["token: ".len()..].to_owned();
    let (address, file) = (server.address().to_owned(), token_file(state.path(), server.address()));
    let allow = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    allow(0o644);
    let ask = |arguments: &[&str]| asked(&address, state.path(), arguments);
    let listed = ask(&["runs", "list"]);
    assert_eq!(listed.code, Some(0), "reading needs no token: {listed:?}");
    assert!(!listed.err.contains("0644"), "a read request does not open the token file: {listed:?}");
    let rejected = ask(&["approvals", "reject", "apr_0"]);
    assert_eq!(rejected.code, Some(1), "{rejected:?}");
    assert!(rejected.err.contains("0644") && rejected.err.contains("HOLDPOINT_TOKEN"), "{rejected:?}");
    server.kill();

    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(folder.path()).args(["serve", "--listen", &address, "--json"]);
        CommandOutput::capture(command.env(variables[0].0, variables[0].1))
    };
    let refused = |said: CommandOutput| {
        let error = said.error();
        assert_eq!((said.code, error["code"].as_str()), (Some(1), Some("UNSAFE_TOKEN_FILE")), "{said:?}");
        assert!(!said.err.contains(&token), "the error does not contain the token: {said:?}");
    };
    refused(serve());
    allow(0o600);
    let elsewhere = state.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).expect("it is moved");
    symlink(&elsewhere, &file).expect("a link");
    refused(serve());
}

#[test]
fn a_server_that_cannot_keep_its_token_says_so_and_serves() {
    let folder = held();
    let variables = [("XDG_STATE_HOME", OsStr::new("relative")), ("HOME", OsStr::new(""))];
    let mut server = Server::start_with(folder.path(), &["serve"], &variables);
    let token = server.wait_for("token: ")["token: ".len()..].to_owned();
    assert!(server.wait_for("this mode is for trying").contains("not kept"));
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(call(server.address(), "POST", "/v1/admin/reload", &headers, "").0, 200);
    assert!(!folder.path().join("relative").exists());
}

#[test]
fn with_keys_there_is_no_token() {
    let folder = held();
    let keys = "\n[[auth.keys]]\nname = \"ann\"\nroles = [\"run\"]\n\
        sha256 = \"41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb\"\n";
    let file = folder.path().join("holdpoint.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text + keys).expect("it is written");
    let state = Folder::new();
    let server =
        Server::start_with(folder.path(), &["serve"], &[("XDG_STATE_HOME", state.path().as_os_str())]);
    let refused = Client::for_server(&server).fails(&["runs", "list"], 1);
    assert!(refused.starts_with("UNAUTHORIZED: "), "{refused}");
    server.signal("TERM");
    let (code, said) = server.ended();
    assert_eq!(code, Some(0));
    assert!(!said.iter().any(|line| line.contains("token: ") || line.contains("for trying")), "{said:#?}");
    assert_eq!(state.names(), [""; 0]);
}
