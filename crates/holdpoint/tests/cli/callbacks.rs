//! A tool that answered 202 reports its result by callback: to the same server, to a restarted one, to another node.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::fake_tool::CalledTool;
use crate::http_tools::{LATER, SENT, VARIABLE, configured, held, started};
use crate::postgres_server;
use crate::program::Folder;
use crate::server::{Server, call, write};

/// A callback URL with its path, and its token.
struct Callback {
    url: String,
    path: String,
    token: String,
}

impl Callback {
    fn of(request: &Value) -> Self {
        let text = |key: &str| request["callback"][key].as_str().expect("it is sent").to_owned();
        let url = text("url");
        let at = url.find("/v1/callbacks/").expect("it is a callback");
        Self { path: url[at..].to_owned(), url, token: text("token") }
    }

    fn report(&self, to: &Server, body: &Value) -> (u16, Value) {
        self.report_as(to, &self.token, body)
    }

    fn report_as(&self, to: &Server, token: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        call(to.address(), "POST", &self.path, &headers, &body.to_string())
    }
}

/// Starts a run and approves its held call.
fn approved(server: &Server) -> String {
    let run = server.begin("clerk", "Pay bob");
    let approval = held(server, &run);
    assert_eq!(server.post_nothing(&format!("/v1/approvals/{approval}/approve")).0, 200);
    run
}

#[test]
fn a_tool_reports_although_the_server_was_killed_in_between() {
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let server = started(&folder);
    let run = approved(&server);
    server.run_with(&run, "waiting_tool");
    let callback = Callback::of(&tool.next().body);
    assert!(
        callback.url.starts_with(&format!("http://{}/v1/callbacks/", server.address())),
        "{}",
        callback.url
    );
    server.kill();

    let server = started(&folder);
    let (code, refused) = callback.report_as(&server, "guessed", &json!({"result": "stolen"}));
    assert_eq!((code, &refused["error"]["code"]), (401, &json!("UNAUTHORIZED")));
    let (code, taken) = callback.report(&server, &json!({"result": {"sent": 5.5}}));
    assert_eq!((code, &taken["outcome"]), (200, &json!("applied")), "{taken}");
    server.run_with(&run, "completed");
    let (_, calls) = server.get(&format!("/v1/runs/{run}/calls"));
    assert_eq!(calls["calls"][0]["result"], json!({"sent": 5.5}));
    server.kill();

    let server = started(&folder);
    let (code, refused) = callback.report(&server, &json!({"result": {"sent": 5.5}}));
    assert_eq!((code, &refused["error"]["code"]), (409, &json!("CALLBACK_SPENT")));
    assert_eq!(refused["error"]["details"]["reason"], "taken");
    assert!(tool.rest().is_empty(), "it was called once");
}

#[test]
fn a_tool_reports_that_it_failed_and_an_interrupted_run_takes_no_report() {
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let server = started(&folder);
    let run = approved(&server);
    server.run_with(&run, "waiting_tool");
    let (code, _) = Callback::of(&tool.next().body).report(&server, &json!({"error": "no such account"}));
    assert_eq!(code, 200);
    server.run_with(&run, "completed");
    let (_, calls) = server.get(&format!("/v1/runs/{run}/calls"));
    assert_eq!(calls["calls"][0]["status"], "failed");

    let run = approved(&server);
    server.run_with(&run, "waiting_tool");
    server.post_nothing(&format!("/v1/runs/{run}/interrupt"));
    server.run_with(&run, "interrupted");
    let (code, refused) = Callback::of(&tool.next().body).report(&server, &json!({"result": 1}));
    assert_eq!((code, &refused["error"]["code"]), (409, &json!("CALLBACK_SPENT")));
}

const SECRET: (&str, &str) = ("HOLDPOINT_TEST_CALLBACK_SECRET", "callback_secret_env");
const OTHER_SECRET: (&str, &str) = ("HOLDPOINT_TEST_OTHER_SECRET", "callback_other_secret_env");

/// Starts a server with these secrets added to its configuration file.
fn with_secrets(folder: &Folder, file: &str, signing: Option<&str>, other: Option<&str>) -> Server {
    let mut server = "[server]\n".to_owned();
    let mut variables = vec![(VARIABLE, OsStr::new("tool-token"))];
    for ((variable, key), secret) in [(SECRET, signing), (OTHER_SECRET, other)] {
        if let Some(secret) = secret {
            server.push_str(&format!("{key} = {variable:?}\n"));
            variables.push((variable, OsStr::new(secret)));
        }
    }
    write(folder, "holdpoint.toml", &file.replacen("[server]\n", &server, 1));
    Server::start_with(folder.path(), &["serve"], &variables)
}

#[test]
fn the_key_of_callbacks_is_rotated_and_callbacks_under_the_old_one_count_until_it_is_gone() {
    let (one, two) = ("1".repeat(32), "2".repeat(32));
    let tool = CalledTool::answering(vec![LATER, LATER, LATER]);
    let folder = configured(&tool);
    let file = std::fs::read_to_string(folder.path().join("holdpoint.toml")).expect("the file is there");
    let held_under = |server: &Server| {
        let run = approved(server);
        server.run_with(&run, "waiting_tool");
        Callback::of(&tool.next().body)
    };
    let stop = |server: Server| {
        server.signal("TERM");
        assert_eq!(server.ended().0, Some(0));
    };
    let result = json!({"result": {"sent": 1}});

    let server = with_secrets(&folder, &file, None, None);
    let of_store = held_under(&server);
    stop(server);
    let server = with_secrets(&folder, &file, Some(&one), None);
    let of_one = held_under(&server);
    assert_eq!(of_store.report(&server, &result).0, 200, "a stored key is accepted until it is removed");
    stop(server);
    let server = with_secrets(&folder, &file, Some(&two), Some(&one));
    let of_two = held_under(&server);
    let key_id = |callback: &Callback| callback.token.split_once('.').expect("a key id").0.to_owned();
    assert_ne!(key_id(&of_one), key_id(&of_two));
    assert_eq!(of_one.report(&server, &result).0, 200, "the previous secret is still accepted");
    stop(server);

    let said = folder.run(&["callback-key", "remove", "--json"]);
    assert_eq!((said.code, &said.json()["removed"]), (Some(0), &json!(true)), "{said:?}");
    let said = folder.run(&["callback-key", "remove"]);
    assert_eq!((said.code, &*said.out), (Some(0), "The store keeps no callback key.\n"), "{said:?}");
    let server = with_secrets(&folder, &file, Some(&two), None);
    for gone in [&of_store, &of_one] {
        assert_eq!(gone.report(&server, &result).0, 401);
    }
    assert_eq!(of_two.report(&server, &result).0, 200);
}

#[test]
fn the_stored_key_is_rotated_and_the_previous_one_is_accepted_until_it_is_removed() {
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let held_under = |server: &Server| {
        let run = approved(server);
        server.run_with(&run, "waiting_tool");
        Callback::of(&tool.next().body)
    };
    let stop = |server: Server| {
        server.signal("TERM");
        assert_eq!(server.ended().0, Some(0));
    };
    let result = json!({"result": {"sent": 1}});

    let server = started(&folder);
    let (first, second) = (held_under(&server), held_under(&server));
    stop(server);
    let said = folder.run(&["callback-key", "rotate", "--json"]);
    assert_eq!((said.code, &said.json()["rotated"]), (Some(0), &json!(true)), "{said:?}");
    let said = folder.run(&["callback-key", "rotate"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("PREVIOUS_KEY_KEPT"), "one more rotation would lose callbacks: {said:?}");

    let server = started(&folder);
    assert_eq!(first.report(&server, &result).0, 200, "it was issued before the rotation");
    let third = held_under(&server);
    let key_id = |callback: &Callback| callback.token.split_once('.').expect("a key id").0.to_owned();
    assert_ne!(key_id(&third), key_id(&second), "new callbacks are signed with the new key");
    stop(server);

    let said = folder.run(&["callback-key", "remove", "--previous", "--json"]);
    assert_eq!((said.code, &said.json()["removed"]), (Some(0), &json!(true)), "{said:?}");
    let said = folder.run(&["callback-key", "remove", "--previous"]);
    assert_eq!((said.code, &*said.out), (Some(0), "The store keeps no previous callback key.\n"), "{said:?}");
    let server = started(&folder);
    assert_eq!(second.report(&server, &result).0, 401, "its key is gone");
    assert_eq!(third.report(&server, &result).0, 200);
}

#[test]
fn a_node_that_runs_during_a_rotation_accepts_both_keys() {
    let database = postgres_server::Server::start();
    let store = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let variables = [(VARIABLE, OsStr::new("tool-token"))];
    let node = || Server::start_with(folder.path(), &["serve", "--store", &store], &variables);
    let held_under = |server: &Server| {
        let run = approved(server);
        server.run_with(&run, "waiting_tool");
        Callback::of(&tool.next().body)
    };
    let result = json!({"result": "sent"});
    let running = node();
    let before = held_under(&running);
    let said = folder.run(&["callback-key", "rotate", "--store", &store, "--json"]);
    assert_eq!((said.code, &said.json()["rotated"]), (Some(0), &json!(true)), "{said:?}");
    // While this node is stopped, the other node calls the tool and signs its callback.
    running.signal("STOP");
    let restarted = node();
    let after = held_under(&restarted);
    running.signal("CONT");
    let key_id = |callback: &Callback| callback.token.split_once('.').expect("a key id").0.to_owned();
    assert_ne!(key_id(&before), key_id(&after));
    assert_eq!(after.report(&running, &result).0, 200, "it reads the new key when it sees its id");
    assert_eq!(before.report(&restarted, &result).0, 200);
}

#[test]
fn a_short_secret_is_refused() {
    let tool = CalledTool::answering(vec![]);
    let folder = configured(&tool);
    let file = std::fs::read_to_string(folder.path().join("holdpoint.toml")).expect("the file is there");
    let (variable, key) = SECRET;
    write(
        &folder,
        "holdpoint.toml",
        &file.replacen("[server]\n", &format!("[server]\n{key} = {variable:?}\n"), 1),
    );
    let said = folder.run(&["serve"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("at least 32 characters"), "{said:?}");
}

#[test]
fn tools_report_to_the_address_that_others_know() {
    let tool = CalledTool::answering(vec![SENT]);
    let folder = configured(&tool);
    let text = std::fs::read_to_string(folder.path().join("holdpoint.toml")).expect("the file is there");
    let public = "[server]\npublic_url = \"https://runs.example.org/holdpoint/\"";
    write(&folder, "holdpoint.toml", &text.replacen("[server]", public, 1));
    let server = started(&folder);
    let run = approved(&server);
    server.run_with(&run, "completed");
    let callback = Callback::of(&tool.next().body);
    assert!(callback.url.starts_with("https://runs.example.org/holdpoint/v1/callbacks/"), "{}", callback.url);
    let (code, refused) = callback.report(&server, &json!({"result": 1}));
    assert_eq!((code, &refused["error"]["code"]), (409, &json!("CALLBACK_SPENT")), "the tool had answered");
}

#[test]
fn a_callback_is_shown_only_to_its_tool() {
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let serve = ["serve", "--log", "json", "--log-level", "trace"];
    let server = Server::start_with(folder.path(), &serve, &[(VARIABLE, OsStr::new("tool-token"))]);
    let run = approved(&server);
    server.run_with(&run, "waiting_tool");
    let callback = Callback::of(&tool.next().body);
    let mut shown = String::new();
    let look = |shown: &mut String| {
        for what in ["", "/events", "/calls", "/state", "/transcript"] {
            shown.push_str(&server.text(&format!("/v1/runs/{run}{what}")));
        }
        for list in ["/v1/runs", "/v1/approvals?status=approved", "/v1/agents", "/metrics"] {
            shown.push_str(&server.text(list));
        }
    };
    look(&mut shown);
    for (token, body) in [
        ("guessed", json!({"result": 1})),
        (callback.token.as_str(), json!({"misspelt": 1})),
        (callback.token.as_str(), json!({"result": "sent"})),
        (callback.token.as_str(), json!({"result": "sent"})),
    ] {
        shown.push_str(&callback.report_as(&server, token, &body).1.to_string());
    }
    server.run_with(&run, "completed");
    look(&mut shown);
    server.signal("TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(0));
    shown.push_str(&log.join("\n"));
    assert!(
        shown.contains("tool:transfer") && shown.contains("/v1/callbacks/{callback}"),
        "output is missing"
    );
    let path = callback.path.rsplit('/').next().expect("a path");
    assert!(!shown.contains(&callback.token) && !shown.contains(path));
    // The store does not contain the token either: a copy of the file must not allow callbacks.
    for entry in std::fs::read_dir(folder.path()).expect("the folder is there") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("it is read");
        let token = callback.token.as_bytes();
        assert!(!bytes.windows(token.len()).any(|part| part == token));
    }
}

#[test]
fn a_tool_of_one_node_reports_to_another() {
    let database = postgres_server::Server::start();
    let store = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let tool = CalledTool::answering(vec![LATER]);
    let folder = configured(&tool);
    let variables = [(VARIABLE, OsStr::new("tool-token"))];
    let node = || Server::start_with(folder.path(), &["serve", "--store", &store], &variables);
    let (one, other) = (node(), node());
    let run = approved(&one);
    let request = tool.next().body;
    // Immediately: the run may not be held yet when the other node receives the callback.
    let (code, taken) = Callback::of(&request).report(&other, &json!({"result": "sent"}));
    assert_eq!((code, &taken["outcome"]), (200, &json!("applied")), "{taken}");
    let (code, refused) = Callback::of(&request).report(&one, &json!({"result": "sent"}));
    assert_eq!((code, &refused["error"]["details"]["reason"]), (409, &json!("taken")), "{refused}");
    other.run_with(&run, "completed");
    let (_, calls) = one.get(&format!("/v1/runs/{run}/calls"));
    assert_eq!(calls["calls"][0]["result"], "sent");
}
