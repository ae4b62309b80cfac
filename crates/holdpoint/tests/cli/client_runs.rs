//! `holdpoint runs` and `replay` against a real server, and against one that sends hostile text.

use serde_json::{Value, json};

use crate::client::{CannedServer, Client, answer, approval, assert_plain, configuration};
use crate::program::Folder;
use crate::server::{Server, configured, write};

/// Control characters that a terminal would act on. A model may write them.
const NASTY: &str = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";

fn nasty_folder() -> Folder {
    let script = json!({"rules": [
        {"when": "write", "replies": [
            {"text": format!("I write{NASTY}\nnow."), "tool_calls": [{"id": format!("call_1{NASTY}"), "name": "write_file",
                "arguments": {"path": "a.txt", "text": format!("A{NASTY}")}}]},
            {"text": format!("Written{NASTY}.")}]},
        {"when": "ask", "replies": [
            {"tool_calls": [{"id": "call_q", "name": "ask_user", "arguments": {"question": format!("Which{NASTY}?")}}]},
            {"text": "So be it."}]},
        {"when": ".*", "replies": [{"text": "Hello."}]}]});
    let folder = configured(&script);
    write(&folder, "holdpoint.toml", &configuration(""));
    folder
}

#[test]
fn runs_are_listed_and_shown_with_what_they_wait_for() {
    let folder = nasty_folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    assert_eq!(client.run(&["runs"]).err, "There are no such runs.\n");
    let greeted = server.begin("clerk", "greet");
    server.run_with(&greeted, "completed");
    let held = server.begin("clerk", "write");
    let run = server.run_with(&held, "waiting_approval");
    let id = approval(&run);

    let table = client.shows(&["runs", "list"]);
    let lines: Vec<&str> = table.lines().collect();
    let [head, first, second] = lines.as_slice() else { panic!("{table}") };
    assert!(head.starts_with("RUN ") && head.ends_with("WAITS FOR"), "{table}");
    assert!(first.starts_with(&held) && first.contains("waiting_approval  clerk"), "{table}");
    assert!(first.ends_with(&format!("the approval of write_file, {id}")), "{table}");
    assert!(second.starts_with(&greeted) && second.contains("completed "), "{table}");
    assert_eq!(client.shows(&["runs"]), table, "`runs` without a subcommand is `runs list`");

    let thread = run["thread_id"].as_str().expect("it has a thread");
    for (filter, expected) in [
        (["--status", "waiting_approval"], &[&held][..]),
        (["--status", "failed"], &[]),
        (["--thread", thread], &[&held]),
        (["--agent", "clerk"], &[&held, &greeted]),
        (["--agent", "absent"], &[]),
        (["--limit", "1"], &[&held]),
    ] {
        let arguments = [&["runs", "list", "--json"][..], &filter].concat();
        let listed: Value = serde_json::from_str(&client.shows(&arguments)).expect("JSON");
        let runs = listed["runs"].as_array().expect("a list");
        let ids: Vec<&str> = runs.iter().filter_map(|run| run["id"].as_str()).collect();
        assert_eq!(ids, expected, "{filter:?}");
        assert_eq!(listed["next_cursor"].is_string(), filter[0] == "--limit", "{listed}");
    }
    assert!(client.run(&["runs", "list", "--limit", "1"]).err.contains("There are more"));

    let shown = client.shows(&["runs", "show", &held]);
    assert!(shown.starts_with(&format!("{held}: waiting_approval\n")), "{shown}");
    assert!(
        shown.contains("\"path\": \"a.txt\"") && shown.contains("A\\u001b[2J\\u009b31m\\u007f\\u202e"),
        "{shown}"
    );
    assert!(shown.contains(&format!("    holdpoint approvals approve {id}\n")), "{shown}");
    for text in [&table, &shown, &client.shows(&["approvals"])] {
        assert_plain(text);
    }
    // `--json` prints the server's response byte for byte.
    for (arguments, path) in [
        (vec!["runs", "list", "--json"], "/v1/runs".to_owned()),
        (vec!["runs", "show", &held, "--json"], format!("/v1/runs/{held}")),
        (vec!["approvals", "list", "--json"], "/v1/approvals".to_owned()),
    ] {
        assert_eq!(client.shows(&arguments), server.text(&path) + "\n", "{arguments:?}");
    }
}

#[test]
fn pages_are_followed_until_there_are_enough() {
    let run = |id: &str| {
        format!(
            r#"{{"zeal":1.50,"id":"{id}","thread_id":"t","agent":"a","status":"running","created_at":"2026-01-01T00:00:00.000Z"}}"#
        )
    };
    let page = |runs: &[&str], next: &str| {
        let runs: Vec<String> = runs.iter().map(|id| run(id)).collect();
        answer("200 OK", &format!(r#"{{"runs":[{}],"next_cursor":{next}}}"#, runs.join(",")))
    };
    let canned_server =
        CannedServer::answering(vec![page(&["r1", "r2"], "\"1.a b&c\""), page(&["r3"], "\"2.x\"")]);
    let client = Client::at(&format!("http://{}", canned_server.address));
    let listed = client.shows(&["runs", "list", "--limit", "3", "--agent", "a/b", "--json"]);
    assert_eq!(
        listed,
        format!("{{\"runs\":[{},{},{}],\"next_cursor\":\"2.x\"}}\n", run("r1"), run("r2"), run("r3"))
    );
    assert!(canned_server.next_request().starts_with("GET /v1/runs?limit=3&agent=a%2Fb HTTP/1.1\r\n"));
    assert!(
        canned_server
            .next_request()
            .starts_with("GET /v1/runs?limit=1&agent=a%2Fb&cursor=1.a%20b%26c HTTP/1.1\r\n")
    );
}

#[test]
fn a_run_is_interrupted_and_its_watcher_exits_with_1() {
    let folder = nasty_folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let run = server.begin("clerk", "write");
    server.run_with(&run, "waiting_approval");
    let mut watcher = client.begin(&["runs", "watch", &run]);
    watcher.wait_for("The run waits for the approval of write_file");
    let said = client.shows(&["runs", "interrupt", &run]);
    assert!([format!("{run}: interrupting\n"), format!("{run}: interrupted\n")].contains(&said), "{said}");
    assert_eq!(watcher.ended(), Some(1), "{:#?}", watcher.stdout_lines);
    assert!(
        watcher.stdout_lines.last().is_some_and(|last| last.contains("The run is interrupted: cancelled."))
    );
    // A second interrupt changes nothing, and a run that has ended can be watched.
    let again: Value =
        serde_json::from_str(&client.shows(&["runs", "interrupt", &run, "--json"])).expect("JSON");
    assert_eq!(again["status"], "interrupted");
    let newest = server.get(&format!("/v1/runs/{run}/events")).1["last_seq"].to_string();
    for after in ["0", newest.as_str()] {
        let said = client.run(&["runs", "watch", &run, "--after", after]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert_eq!(said.out.is_empty(), after == newest, "{said:?}");
    }
}

#[test]
fn a_log_is_replayed_from_a_server_and_from_its_file() {
    let folder = nasty_folder();
    let server = Server::start(folder.path(), &["serve"]);
    let client = Client::for_server(&server);
    let run = server.begin("clerk", "write");
    let id = approval(&server.run_with(&run, "waiting_approval"));
    client.approve(&id);
    server.run_with(&run, "completed");

    let story = client.shows(&["replay", &run]);
    let told: Vec<&str> = story.lines().map(|line| line.split_at(14).1).collect();
    assert_eq!(told[0], "The run is queued.", "{story}");
    for line in [
        "The user (anonymous) says: write",
        "The model says: I write\\u001b[2J\\u009b31m\\u007f\\u202e",
        "| now.",
        "The run no longer waits.",
        "The run is completed: natural_end. Tokens: 0 in, 0 out.",
    ] {
        assert!(told.contains(&line), "{line}\n{story}");
    }
    assert!(
        story.contains(&format!("is held for approval {id}."))
            && story.contains("anonymous approves write_file")
    );
    assert_plain(&story);

    let log: Vec<Value> = client
        .shows(&["replay", &run, "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let (_, page) = server.get(&format!("/v1/runs/{run}/events?limit=1000"));
    assert_eq!(json!(log), page["events"]);
    // While a server has the file open, and without a server.
    let stored = |arguments: &[&str]| {
        let said = folder.run(&[arguments, &["--store", "sqlite:holdpoint.db"]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out
    };
    let as_json = client.shows(&["replay", &run, "--json"]);
    assert_eq!(
        (stored(&["replay", &run]), stored(&["replay", &run, "--json"])),
        (story.clone(), as_json.clone())
    );
    server.kill();
    assert_eq!((stored(&["replay", &run]), stored(&["replay", &run, "--json"])), (story, as_json));
    let unknown = folder.run(&["replay", "run_0", "--store", "sqlite:holdpoint.db"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(1), ""), "{unknown:?}");
    assert!(unknown.err.starts_with("RUN_NOT_FOUND: "), "{unknown:?}");
}

#[test]
fn a_log_of_several_pages_is_read_to_its_end() {
    let event = |seq: u64| {
        format!(r#"{{"seq":{seq},"type":"run.resumed","ts":"2026-01-01T00:00:0{seq}.000Z","payload":{{}}}}"#)
    };
    let page = |seq: u64, next: &str| {
        answer("200 OK", &format!(r#"{{"events":[{}],"last_seq":2,"next_after":{next}}}"#, event(seq)))
    };
    let canned_server = CannedServer::answering(vec![page(1, "1"), page(2, "null")]);
    let client = Client::at(&format!("http://{}/", canned_server.address));
    assert_eq!(client.shows(&["replay", "run_1", "--json"]), format!("{}\n{}\n", event(1), event(2)));
    assert!(
        canned_server.next_request().starts_with("GET /v1/runs/run_1/events?limit=1000&after=0 HTTP/1.1\r\n")
    );
    assert!(
        canned_server.next_request().starts_with("GET /v1/runs/run_1/events?limit=1000&after=1 HTTP/1.1\r\n")
    );
}
