//! `holdpoint serve`: starts, answers, survives a kill, reloads its configuration, and stops in order.

use std::process::Command;

use serde_json::{Value, json};

use crate::program::{CommandOutput, Folder};
use crate::server::{CONFIGURATION, Server, call, configured, write};

const SERVE: [&str; 1] = ["serve"];

/// The model wants to write two files, each of which is held, and then ends.
fn two_files() -> Value {
    let file = |id: &str, path: &str| json!({"id": id, "name": "write_file", "arguments": {"path": path, "text": "A line.\n"}});
    json!({"rules": [{"when": ".*", "replies": [
        {"tool_calls": [file("call_a", "a.txt"), file("call_b", "b.txt")]},
        {"text": "Both are written."},
    ]}]})
}

fn asks_for(tool: &str, arguments: Value) -> Value {
    json!({"rules": [{"when": ".*", "replies": [
        {"tool_calls": [{"id": "call_1", "name": tool, "arguments": arguments}]},
        {"text": "Done."},
    ]}]})
}

fn written(folder: &Folder, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.path().join("written").join(name)).ok()
}

/// The ids of the pending approvals, in order.
fn pending(server: &Server) -> Vec<String> {
    let (code, listed) = server.get("/v1/approvals");
    assert_eq!(code, 200, "{listed}");
    let approvals = listed["approvals"].as_array().expect("a list");
    approvals.iter().map(|approval| approval["id"].as_str().expect("it has an id").to_owned()).collect()
}

fn events(server: &Server, run: &str) -> Vec<Value> {
    let (code, listed) = server.get(&format!("/v1/runs/{run}/events"));
    assert_eq!(code, 200, "{listed}");
    listed["events"].as_array().expect("a list").clone()
}

#[test]
fn a_server_starts_answers_and_runs_what_is_approved() {
    let folder = configured(&two_files());
    let server = Server::start(folder.path(), &SERVE);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/readyz").0, 200);
    let (code, agents) = server.get("/v1/agents");
    assert_eq!((code, &agents["agents"][0]["name"]), (200, &json!("clerk")), "{agents}");

    let run = server.begin("clerk", "Write two files.");
    let held = server.run_with(&run, "waiting_approval");
    assert_eq!(held["pending"].as_array().map(Vec::len), Some(2), "{held}");
    for approval in pending(&server) {
        assert_eq!(written(&folder, "b.txt"), None, "nothing is written before it is approved");
        let (code, approved) = server.post_nothing(&format!("/v1/approvals/{approval}/approve"));
        assert_eq!((code, &approved["status"]), (200, &json!("approved")), "{approved}");
        assert_eq!(approved["decided_by"], "anonymous");
    }
    let ended = server.run_with(&run, "completed");
    assert_eq!(ended["termination"]["reason"], "natural_end");
    assert_eq!(written(&folder, "a.txt").as_deref(), Some("A line.\n"));
    assert_eq!(written(&folder, "b.txt").as_deref(), Some("A line.\n"));
}

#[test]
fn d41_killed_and_restarted_it_has_the_same_events_and_approvals_and_they_work() {
    let folder = configured(&two_files());
    let first = Server::start(folder.path(), &SERVE);
    let run = first.begin("clerk", "Write two files.");
    first.run_with(&run, "waiting_approval");
    let before = pending(&first);
    assert_eq!(before.len(), 2);
    let (code, _) = first.post_nothing(&format!("/v1/approvals/{}/approve", before[0]));
    assert_eq!(code, 200);
    let printed = events(&first, &run);
    first.kill();

    let second = Server::start(folder.path(), &SERVE);
    let now = events(&second, &run);
    assert!(now.len() >= printed.len() && printed.len() > 5, "{printed:?}");
    assert_eq!(now[..printed.len()], printed, "the events before the kill are stored");
    // The first call was approved. It runs, or it was running and is in doubt; its approval is never pending again.
    let left = pending(&second);
    assert!(!left.contains(&before[0]) && left.contains(&before[1]), "{before:?} {left:?}");
    second.until(&format!("/v1/runs/{run}"), |run| run["status"] != "running");
    for approval in pending(&second) {
        let (_, shown) = second.get(&format!("/v1/approvals/{approval}"));
        let (code, said) = match shown["kind"].as_str() {
            Some("approval") => second.post_nothing(&format!("/v1/approvals/{approval}/approve")),
            _ => second.post(&format!("/v1/approvals/{approval}/answer"), &json!({"choice": "retry"})),
        };
        assert_eq!(code, 200, "{said}");
    }
    second.run_with(&run, "completed");
    assert!(written(&folder, "a.txt").is_some() && written(&folder, "b.txt").is_some());
    let (code, refused) = second.post_nothing(&format!("/v1/approvals/{}/approve", before[0]));
    assert_eq!((code, &refused["error"]["code"]), (409, &json!("APPROVAL_NOT_PENDING")), "{refused}");
}

#[test]
fn client_and_external_tools_wait_for_their_result() {
    let folder = configured(&asks_for("pick", json!({})));
    let server = Server::start(folder.path(), &SERVE);
    let run = server.begin("clerk", "Which colour?");
    let held = server.run_with(&run, "waiting_tool");
    assert_eq!(held["pending"][0]["kind"], "client_tool", "{held}");
    let decision = json!({"decisions": [{"call_id": "call_1", "action": "resume", "result": "blue"}]});
    let (code, said) = server.post(&format!("/v1/runs/{run}/decisions"), &decision);
    assert_eq!((code, &said["results"][0]["outcome"]), (200, &json!("applied")), "{said}");
    server.run_with(&run, "completed");

    write(&folder, "script.json", &asks_for("post_office", json!({})).to_string());
    server.signal("HUP");
    let mut server = server;
    server.wait_for("the configuration was reloaded");
    let run = server.begin("clerk", "Send it.");
    let held = server.run_with(&run, "waiting_tool");
    assert_eq!(held["pending"][0]["kind"], "external", "{held}");
}

#[test]
fn sigterm_lets_a_running_call_finish_and_exits_with_0() {
    let folder = configured(&asks_for("sleep", json!({"ms": 3000})));
    let mut server = Server::start(folder.path(), &SERVE);
    let run = server.begin("clerk", "Sleep.");
    server.until(&format!("/v1/runs/{run}/calls"), |calls| calls["calls"][0]["status"] == "running");
    server.signal("TERM");
    server.wait_for("stop requested");
    // It reports that it is not ready while the call still runs.
    let (code, _) = server.get("/readyz");
    assert_eq!(code, 503);
    let (code, refused) = server.post("/v1/threads", &json!({}));
    assert_eq!((code, &refused["error"]["code"]), (503, &json!("DRAINING")), "{refused}");
    let (code, said) = server.ended();
    assert_eq!(code, Some(0), "{said:#?}");

    let again = Server::start(folder.path(), &SERVE);
    let (_, calls) = again.get(&format!("/v1/runs/{run}/calls"));
    assert_eq!(calls["calls"][0]["status"], "succeeded", "{calls}");
    assert_eq!(calls["calls"][0]["attempts"], 1, "the call was not cancelled and retried: {calls}");
    again.run_with(&run, "completed");
}

#[test]
fn waiting_runs_do_not_delay_the_end_and_ctrl_c_ends_it_too() {
    let folder = configured(&two_files());
    for signal in ["INT", "TERM"] {
        let server = Server::start(folder.path(), &SERVE);
        let run = server.begin("clerk", "Write two files.");
        server.run_with(&run, "waiting_approval");
        let before = std::time::Instant::now();
        server.signal(signal);
        assert_eq!(server.ended().0, Some(0));
        // The file allows twenty seconds, but nothing has to finish.
        assert!(before.elapsed() < std::time::Duration::from_secs(10), "{:?}", before.elapsed());
    }
}

#[test]
fn a_second_signal_ends_it_at_once_and_nothing_is_lost() {
    let folder = configured(&asks_for("sleep", json!({"ms": 60_000})));
    let mut server = Server::start(folder.path(), &SERVE);
    let run = server.begin("clerk", "Sleep.");
    server.until(&format!("/v1/runs/{run}/calls"), |calls| calls["calls"][0]["status"] == "running");
    server.signal("TERM");
    server.wait_for("stop requested");
    server.signal("TERM");
    let (code, said) = server.ended();
    assert_eq!(code, Some(1), "{said:#?}");
    let again = Server::start(folder.path(), &SERVE);
    let (code, found) = again.get(&format!("/v1/runs/{run}"));
    assert_eq!((code, &found["status"]), (200, &json!("running")), "{found}");
}

#[test]
fn a_bad_file_changes_nothing_and_says_what_is_wrong() {
    let folder = configured(&two_files());
    let mut server = Server::start(folder.path(), &SERVE);
    let (_, before) = server.get("/v1/agents");
    let bad = CONFIGURATION.replace("\"sleep\", ", "\"slepe\", ");
    write(&folder, "holdpoint.toml", &bad);
    let (code, refused) = server.post_nothing("/v1/admin/reload");
    assert!((400..500).contains(&code), "{code}: {refused}");
    assert!(refused.to_string().contains("slepe"), "the error names the mistake: {refused}");
    server.signal("HUP");
    let line = server.wait_for("nothing was changed");
    assert!(line.contains("agents.clerk.tools[1]"), "{line}");
    assert_eq!(server.get("/v1/agents").1, before);

    // A reload cannot change the store.
    let sealed = format!("{CONFIGURATION}\n[store]\nurl = \"memory:\"\n");
    write(&folder, "holdpoint.toml", &sealed);
    let (code, refused) = server.post_nothing("/v1/admin/reload");
    assert!((400..500).contains(&code) && refused.to_string().contains("store.url"), "{code}: {refused}");
    assert_eq!(server.get("/v1/agents").1, before);

    let good = format!("{CONFIGURATION}\n[agents.porter]\nmodel = \"script\"\n");
    write(&folder, "holdpoint.toml", &good);
    let (code, _) = server.post_nothing("/v1/admin/reload");
    assert_eq!(code, 200);
    let (_, after) = server.get("/v1/agents");
    assert_eq!(after["agents"].as_array().map(Vec::len), Some(2), "{after}");
    server.begin("porter", "Good morning.");
}

#[test]
fn rules_are_checked_against_schemas_at_the_start_and_when_the_file_is_read_again() {
    let folder = configured(&two_files());
    let write_rule = |tool: &str, when: &str| {
        let rule =
            format!("[[agents.clerk.rules]]\ntool = \"{tool}\"\nwhen = {{ {when} }}\nthen = \"deny\"\n");
        write(&folder, "holdpoint.toml", &format!("{CONFIGURATION}{rule}"));
    };
    write_rule("write_file", "folder = { eq = \"/etc\" }");
    let said = folder.run(&["serve"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("agents.clerk.rules[0].when.folder: the schema of tool write_file"),
        "{said:?}"
    );

    write_rule("post_office", "to = { eq = \"eve\" }");
    let (can_leave_out, rule) = ("the model can leave \"to\" out", "agents.clerk.rules[0].when.to: ");
    let mut server = Server::start(folder.path(), &SERVE);
    assert!(
        server.log_lines().iter().any(|line| line.contains("WARN") && line.contains(rule)),
        "it warns at the start"
    );
    write_rule("write_file", "path = { lt = 5 }");
    server.signal("HUP");
    let line = server.wait_for("nothing was changed");
    assert!(line.contains("agents.clerk.rules[0].when.path.lt: the schema of tool write_file"), "{line}");
    write_rule("post_office", "to = { eq = \"mallory\" }");
    server.signal("HUP");
    let line = server.wait_for(can_leave_out);
    assert!(line.contains("WARN") && line.contains(rule), "{line}");
    server.wait_for("was reloaded");
}

#[test]
fn a_second_process_on_one_file_is_refused() {
    let folder = configured(&two_files());
    let server = Server::start(folder.path(), &SERVE);
    let said = folder.run(&["serve", "--json"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert_eq!(said.error()["code"], "STORE_IN_USE");
    assert!(said.error()["next"].is_string());
    assert_eq!(server.get("/healthz").0, 200, "the first server keeps running");
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let folder = configured(&two_files());
    let server = Server::start(folder.path(), &SERVE);
    let other = configured(&two_files());
    let said = other.run(&["serve", "--listen", server.address(), "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(1), Some("CANNOT_LISTEN")), "{said:?}");
}

#[test]
fn what_cannot_be_served_exits_with_2_and_makes_nothing() {
    let folder = Folder::new();
    let said = folder.run(&["serve", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("CONFIGURATION_UNREADABLE")));
    write(&folder, "holdpoint.toml", "[server]\nlisten = 7\n");
    let said = folder.run(&["serve"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.starts_with("holdpoint.toml:2: server.listen: "), "{said:?}");
    write(&folder, "holdpoint.toml", "");
    let said = folder.run(&["serve", "--listen", "0.0.0.0:0", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("OPEN_TO_OTHERS")), "{said:?}");
    assert_eq!(folder.names(), ["holdpoint.toml"]);
}

/// SHA-256 of `open sesame`.
const SESAME: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

#[test]
fn with_keys_it_listens_to_others_and_the_token_is_in_no_log() {
    let folder = configured(&two_files());
    let keys =
        format!("{CONFIGURATION}\n[[auth.keys]]\nname = \"ops\"\nsha256 = \"{SESAME}\"\nroles = [\"run\"]\n");
    write(&folder, "holdpoint.toml", &keys);
    let server = Server::start(folder.path(), &["serve", "--listen", "0.0.0.0:0", "--log", "json"]);
    let address = server.address().replace("0.0.0.0", "127.0.0.1");
    let bearer = |token: &'static str| [("authorization", token)];
    let asked = |headers: &[(&str, &str)], path: &str| call(&address, "GET", path, headers, "").0;
    assert_eq!(asked(&[], "/v1/runs"), 401);
    assert_eq!(asked(&bearer("Bearer close sesame"), "/v1/runs"), 401);
    assert_eq!(asked(&bearer("Bearer open sesame"), "/v1/runs"), 200);
    assert_eq!(asked(&bearer("Bearer open sesame"), "/metrics"), 403);
    server.signal("TERM");
    let (code, said) = server.ended();
    assert_eq!(code, Some(0));
    for line in &said {
        serde_json::from_str::<Value>(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        assert!(!line.contains("sesame") && !line.contains(SESAME), "{line}");
    }
    assert!(said.len() >= 3, "the log has lines for listening, stopping and stopped: {said:#?}");
}

#[test]
fn the_listen_address_is_printed_with_every_log_format_and_level() {
    let folder = configured(&two_files());
    for form in ["text", "json"] {
        for level in ["error", "info"] {
            let serve = ["serve", "--store", "memory:", "--log", form, "--log-level", level];
            let server = Server::start(folder.path(), &serve);
            assert_eq!(server.get("/healthz").0, 200);
            server.signal("TERM");
            let (_, said) = server.ended();
            let line = said.iter().find(|line| line.contains("listening on http://")).expect("it started");
            assert_eq!(serde_json::from_str::<Value>(line).is_ok(), form == "json", "{line}");
        }
    }
}

#[test]
fn a_tool_of_the_file_that_no_agent_has_is_a_tool_of_the_server() {
    let folder = configured(&two_files());
    let server = Server::start(folder.path(), &SERVE);
    let file =
        format!("{CONFIGURATION}\n[tools.idle]\nkind = \"external\"\nparameters = {{ type = \"object\" }}\n");
    write(&folder, "holdpoint.toml", &file);
    let (_, thread) = server.post("/v1/threads", &json!({}));
    let path = format!("/v1/threads/{}/messages", thread["id"].as_str().expect("it has an id"));
    let message = json!({"agent": "clerk", "text": "Go.", "tools": [{"name": "idle"}]});
    assert_eq!(server.post_nothing("/v1/admin/reload").0, 200);
    let (code, refused) = server.post(&path, &message);
    assert_eq!((code, &refused["error"]["code"]), (400, &json!("TOOL_NAME_TAKEN")), "{refused}");
    write(&folder, "holdpoint.toml", CONFIGURATION);
    assert_eq!(server.post_nothing("/v1/admin/reload").0, 200);
    assert_eq!(server.post(&path, &message).0, 202, "the file no longer has a tool of this name");
}

#[test]
fn a_store_in_memory_is_gone_with_its_process() {
    let folder = configured(&two_files());
    let server = Server::start(folder.path(), &["serve", "--store", "memory:"]);
    let run = server.begin("clerk", "Write two files.");
    server.run_with(&run, "waiting_approval");
    server.kill();
    assert_eq!(folder.names(), ["holdpoint.toml", "script.json"]);
}

#[test]
fn a_password_of_a_store_is_not_repeated() {
    let folder = configured(&two_files());
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(folder.path());
    // No process listens on port 1.
    let said =
        CommandOutput::capture(command.args(["serve", "--store", "postgres://ann:sesame@127.0.0.1:1/runs"]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("next: ") && !said.err.contains("sesame"), "{said:?}");
}
