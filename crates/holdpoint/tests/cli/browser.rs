//! Web pages that call a server: the configured origins and their reload, tokens over restarts, and what the log shows.

use std::time::Instant;

use serde_json::{Value, json};

use crate::program::Folder;
use crate::server::{CONFIGURATION, STUCK_AFTER, Server, call, configured, write};

/// SHA-256 of `open sesame`.
const SHA256: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";
const KEY: &str = "Bearer open sesame";
const PAGE: &str = "https://app.example.com";

fn hello() -> Value {
    json!({"rules": [{"when": ".*", "replies": [{"text": "Hello."}]}]})
}

/// A file with one key that acts for others, and with these origins.
fn with_key(origins: &str) -> String {
    let server = CONFIGURATION.replacen("[server]\n", &format!("[server]\nallow_origins = {origins}\n"), 1);
    format!(
        "{server}\n[[auth.keys]]\nname = \"backend\"\nsha256 = \"{SHA256}\"\nacts_for = true\n\
         roles = [\"run\", \"approve\", \"admin\", \"operator\"]\n"
    )
}

fn folder(origins: &str) -> Folder {
    let folder = configured(&hello());
    write(&folder, "holdpoint.toml", &with_key(origins));
    folder
}

fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call(server.address(), method, path, &all, &body)
}

fn preflight(server: &Server) -> u16 {
    let headers = [("origin", PAGE), ("access-control-request-method", "GET")];
    call(server.address(), "OPTIONS", "/v1/runs", &headers, "").0
}

fn token(server: &Server, request: &Value) -> String {
    let (code, made) = ask(server, "POST", "/v1/tokens", &[("authorization", KEY)], request);
    assert_eq!(code, 201, "{made}");
    made["token"].as_str().expect("a token").to_owned()
}

#[test]
fn a_reload_changes_the_origins_without_a_restart() {
    let folder = folder("[]");
    let mut server = Server::start(folder.path(), &["serve"]);
    assert_eq!(preflight(&server), 405);
    write(&folder, "holdpoint.toml", &with_key(&format!("[\"{PAGE}\"]")));
    let (code, reloaded) = ask(&server, "POST", "/v1/admin/reload", &[("authorization", KEY)], &Value::Null);
    assert_eq!(code, 200, "{reloaded}");
    assert_eq!(preflight(&server), 204);
    write(&folder, "holdpoint.toml", &with_key("[\"*\"]"));
    let (code, refused) = ask(&server, "POST", "/v1/admin/reload", &[("authorization", KEY)], &Value::Null);
    assert!(code == 400 && refused.to_string().contains("server.allow_origins[0]"), "{code}: {refused}");
    assert_eq!(preflight(&server), 204, "the previous configuration stays in force");
    write(&folder, "holdpoint.toml", &with_key("[]"));
    server.signal("HUP");
    server.wait_for("the configuration was reloaded");
    let (code, _) = ask(&server, "POST", "/v1/admin/reload", &[("authorization", KEY)], &Value::Null);
    assert_eq!((code, preflight(&server)), (200, 405));
}

#[test]
fn a_token_outlives_a_restart_and_dies_with_the_signing_key() {
    let folder = folder("[]");
    let first = Server::start(folder.path(), &["serve"]);
    let token = format!("Bearer {}", token(&first, &json!({"ttl": "1h", "acting_for": "ann"})));
    let me = |server: &Server| ask(server, "GET", "/v1/me", &[("authorization", &token)], &Value::Null);
    assert_eq!(me(&first).1["principal"], "ann");
    first.kill();
    let second = Server::start(folder.path(), &["serve"]);
    assert_eq!((me(&second).0, me(&second).1["via"].as_str()), (200, Some("backend")));
    second.kill();
    assert_eq!(folder.run(&["callback-key", "rotate"]).code, Some(0));
    let third = Server::start(folder.path(), &["serve"]);
    assert_eq!(me(&third).0, 200, "the previous signing key is accepted");
    third.kill();
    assert_eq!(folder.run(&["callback-key", "remove"]).code, Some(0));
    let fourth = Server::start(folder.path(), &["serve"]);
    assert_eq!(me(&fourth).0, 401);
}

/// A desk delegates to an office, and the office wants to write a file.
fn delegating() -> Folder {
    let folder = folder("[]");
    let replies = |call: Value| json!({"rules": [{"when": ".*", "replies": [{"tool_calls": [call]}, {"text": "Done."}]}]});
    let ask = json!({"id": "ask", "name": "ask_office", "arguments": {"message": "Write it."}});
    let file = json!({"id": "file", "name": "write_file", "arguments": {"path": "a.txt", "text": "Hello."}});
    write(&folder, "desk.json", &replies(ask).to_string());
    write(&folder, "office.json", &replies(file).to_string());
    let more = "[tools.ask_office]\nkind = \"agent\"\nagent = \"office\"\napproval = \"never\"\n\
        [models.desk]\nprovider = \"scripted\"\nscript = \"desk.json\"\n\
        [models.office]\nprovider = \"scripted\"\nscript = \"office.json\"\n\
        [agents.desk]\nmodel = \"desk\"\ntools = [\"ask_office\"]\n\
        [agents.office]\nmodel = \"office\"\ntools = [\"write_file\"]\n";
    write(&folder, "holdpoint.toml", &format!("{}\n{more}", with_key("[]")));
    folder
}

#[test]
fn a_token_for_a_thread_or_a_run_reaches_what_its_runs_delegate() {
    let folder = delegating();
    let server = Server::start(folder.path(), &["serve"]);
    let begin = |thread: &str| -> (String, Value) {
        ask(&server, "POST", "/v1/threads", &[("authorization", KEY)], &json!({"id": thread}));
        let path = format!("/v1/threads/{thread}/messages");
        let message = json!({"agent": "desk", "text": "Hi."});
        let (code, posted) = ask(&server, "POST", &path, &[("authorization", KEY)], &message);
        assert_eq!(code, 202, "{posted}");
        let run = posted["run_id"].as_str().expect("a run").to_owned();
        let list = format!("/v1/approvals?run_id={run}");
        let until = Instant::now() + STUCK_AFTER;
        loop {
            let (_, listed) = ask(&server, "GET", &list, &[("authorization", KEY)], &Value::Null);
            match listed["approvals"].get(0) {
                Some(held) => return (run, held.clone()),
                None => assert!(Instant::now() < until, "nothing is held: {listed}"),
            }
        }
    };
    let (run, held) = begin("t");
    let (_, other) = begin("u");
    let id = |held: &Value, field: &str| held[field].as_str().expect("an id").to_owned();
    let child = id(&held, "run_id");
    assert_ne!(child, run);
    for reach in [json!({"thread_id": "t"}), json!({"run_id": run})] {
        let mut request = json!({"ttl": "1h", "roles": ["run", "approve"]});
        request.as_object_mut().expect("fields").extend(reach.as_object().expect("fields").clone());
        let bearer = format!("Bearer {}", token(&server, &request));
        let get = |path: &str| ask(&server, "GET", path, &[("authorization", &bearer)], &Value::Null);
        let listed = get("/v1/approvals").1;
        assert_eq!(listed["approvals"].as_array().map(Vec::len), Some(1), "{reach}: {listed}");
        assert_eq!(listed["approvals"][0]["id"], held["id"]);
        for path in ["", "/calls", "/events", "/transcript", "/state"] {
            assert_eq!(get(&format!("/v1/runs/{child}{path}")).0, 200, "{reach} {path}");
            assert_eq!(get(&format!("/v1/runs/{}{path}", id(&other, "run_id"))).0, 404, "{reach} {path}");
        }
        assert_eq!(get(&format!("/v1/approvals/{}", id(&held, "id"))).0, 200);
        assert_eq!(get(&format!("/v1/approvals/{}", id(&other, "id"))).0, 404);
        // The thread of the delegated run is another one.
        assert_eq!(get(&format!("/v1/threads/{}", id(&held, "thread_id"))).0, 404);
    }
    // A token for the delegated run does not reach the run above it.
    let below = format!("Bearer {}", token(&server, &json!({"ttl": "1h", "run_id": child})));
    let get = |path: &str| ask(&server, "GET", path, &[("authorization", &below)], &Value::Null).0;
    assert_eq!(get(&format!("/v1/runs/{child}")), 200);
    assert_eq!(get(&format!("/v1/runs/{run}")), 404);
}

#[test]
fn no_token_is_in_the_log_whatever_its_level() {
    let folder = folder(&format!("[\"{PAGE}\"]"));
    let mut server = Server::start(folder.path(), &["serve", "--log-level", "trace"]);
    let (code, thread) = ask(&server, "POST", "/v1/threads", &[("authorization", KEY)], &json!({"id": "t"}));
    assert_eq!(code, 201, "{thread}");
    let request = json!({"ttl": "1h", "roles": ["run", "approve"], "thread_id": "t"});
    let token = token(&server, &request);
    let message = json!({"agent": "clerk", "text": "Hi."});
    let bearer = format!("Bearer {token}");
    let (code, posted) =
        ask(&server, "POST", "/v1/threads/t/messages?wait=30s", &[("authorization", &bearer)], &message);
    assert_eq!(code, 202, "{posted}");
    let sse = ("accept", "text/event-stream");
    let run = posted["run_id"].as_str().expect("a run");
    for (path, headers, expected) in [
        (format!("/v1/runs/{run}/events?access_token={token}"), vec![sse], 200),
        (format!("/v1/runs/{run}/events?access_token={token}&nonsense=1"), vec![sse], 400),
        (format!("/v1/runs/none/events?access_token={token}"), vec![sse], 404),
        (format!("/v1/runs/{run}/events?access_token={token}00"), vec![sse], 401),
        (format!("/v1/runs?access_token={token}"), vec![], 400),
        (format!("/v1/nonsense?access_token={token}"), vec![], 404),
        (format!("/healthz?access_token={token}"), vec![], 200),
    ] {
        let found = ask(&server, "GET", &path, &headers, &Value::Null);
        assert_eq!(found.0, expected, "{path}");
        assert!(!found.1.to_string().contains(&token), "the response does not repeat it: {}", found.1);
    }
    server.signal("TERM");
    server.wait_for("stopped");
    let (_, log) = server.ended();
    let (_, secret) = token.rsplit_once('.').expect("a signature");
    assert!(log.len() > 10, "{log:#?}");
    for line in &log {
        assert!(!line.contains(secret) && !line.contains("open sesame"), "{line}");
    }
}
