//! `holdpoint runs watch` while the server is killed, and over streams that break.

use serde_json::json;

use crate::client::{CannedServer, Client, answer, approval};
use crate::server::{Server, configured};

#[test]
fn a_watcher_survives_a_server_restart_and_ends_with_the_run() {
    let script = json!({"rules": [{"when": ".*", "replies": [
        {"text": "I will write\nit down.", "delta_chars": 3, "delay_ms": 5,
            "tool_calls": [{"id": "call_1", "name": "write_file", "arguments": {"path": "a.txt", "text": "A"}}]},
        {"text": "It is written, as you wished.", "delta_chars": 4, "delay_ms": 5}]}]});
    let folder = configured(&script);
    let first = Server::start(folder.path(), &["serve"]);
    let address = first.address().to_owned();
    let client = Client::at(&format!("http://{address}"));
    let run = first.begin("clerk", "Go.");
    let mut watcher = client.begin(&["runs", "watch", &run]);
    let mut frames = client.begin(&["runs", "watch", &run, "--json"]);
    watcher.wait_for("The run waits for the approval of write_file");
    frames.wait_for("\"run.waiting\"");
    first.kill();
    watcher.wait_for_stderr("trying again in");
    frames.wait_for_stderr("trying again in");

    let second = Server::start(folder.path(), &["serve", "--listen", &address]);
    let id = approval(&second.run_with(&run, "waiting_approval"));
    // Without a terminal the command does not ask for confirmation.
    client.approve(&id);
    assert_eq!((watcher.ended(), frames.ended()), (Some(0), Some(0)), "{:#?}", watcher.stdout_lines);
    // Both watchers received every event exactly once.
    let sentences = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split_at(14).1.to_owned()).collect()
    };
    let story: Vec<String> = client.shows(&["replay", &run]).lines().map(str::to_owned).collect();
    assert_eq!(sentences(&watcher.stdout_lines), sentences(&story));
    let stored: Vec<&String> = frames.stdout_lines.iter().filter(|line| line.contains("\"seq\":")).collect();
    let log = client.shows(&["replay", &run, "--json"]);
    assert_eq!(stored, log.lines().collect::<Vec<_>>());
    assert!(
        frames.stdout_lines.iter().any(|line| line.contains("\"text.delta\"")),
        "{:#?}",
        frames.stdout_lines
    );

    let after = client.shows(&["runs", "watch", &run, "--after", "8"]);
    assert_eq!(
        sentences(&after.lines().map(str::to_owned).collect::<Vec<_>>()).last(),
        sentences(&story).last()
    );
    assert!(after.lines().count() < story.len() && !after.contains("The run begins."), "{after}");
}

#[test]
fn a_broken_stream_is_resumed_after_the_last_received_event() {
    let run = r#"{"id":"run_1","thread_id":"t","agent":"a","status":"running","created_at":"2026-01-01T00:00:00.000Z"}"#;
    let stream = |frames: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{frames}")
    };
    let frame = |seq: u64, kind: &str| {
        let data = format!(
            r#"{{"seq":{seq},"type":"{kind}","ts":"2026-01-01T00:00:0{seq}.000Z","payload":{{"status":"failed","termination":{{"reason":"error"}},"usage":{{}}}}}}"#
        );
        format!("id: {seq}\nevent: {kind}\ndata: {data}\n\n")
    };
    let half = frame(2, "run.resumed");
    let draining = r#"{"error":{"code":"DRAINING","message":"it stops","details":{}}}"#;
    let canned_server = CannedServer::answering(vec![
        answer("200 OK", run),
        stream(&format!("{}{}", frame(1, "run.started"), &half[..half.len() / 2])),
        answer("503 Service Unavailable", draining),
        answer("502 Bad Gateway", "<html>"),
        // A server that ignores the last event id starts from the beginning.
        stream(&format!("{}{half}{}", frame(1, "run.started"), frame(3, "run.failed"))),
    ]);
    let mut watcher =
        Client::at(&format!("http://{}", canned_server.address)).begin(&["runs", "watch", "run_1"]);
    assert_eq!(watcher.ended(), Some(1), "{:#?}", watcher.stdout_lines);
    assert_eq!(
        watcher.stdout_lines,
        [
            "+0:00:01.000  The run begins.",
            "+0:00:02.000  The run no longer waits.",
            "+0:00:03.000  The run is failed: error. Tokens: 0 in, 0 out.",
        ]
    );
    watcher.wait_for_stderr("The connection was lost after event 1; trying again.");
    watcher.wait_for_stderr("DRAINING: it stops; trying again in 500ms.");
    watcher.wait_for_stderr("502 Bad Gateway");
    let heads: Vec<String> = (0..5).map(|_| canned_server.next_request()).collect();
    assert!(!heads[1].contains("last-event-id") && heads[4].contains("last-event-id: 1\r\n"), "{heads:#?}");
}

#[test]
fn a_watcher_stops_if_its_run_was_deleted_meanwhile() {
    let run = r#"{"id":"run_1","thread_id":"t","agent":"a","status":"running","created_at":"2026-01-01T00:00:00.000Z"}"#;
    let gone = r#"{"error":{"code":"RUN_NOT_FOUND","message":"there is none","details":{}}}"#;
    let canned_server = CannedServer::answering(vec![answer("200 OK", run), answer("404 Not Found", gone)]);
    let said = Client::at(&format!("http://{}", canned_server.address)).run(&["runs", "watch", "run_1"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(
        said.err.starts_with("RUN_NOT_FOUND: there is none\n  next: See docs/errors/RUN_NOT_FOUND.md."),
        "{said:?}"
    );
}
