//! The memory that requests, results and responses use, measured on the program itself.
#![cfg(target_os = "linux")]

use std::thread;

use serde_json::{Value, json};

use crate::fake_tool::CalledTool;
use crate::program::Folder;
use crate::server::{Server, call, write};

const MIB: usize = 1024 * 1024;
/// Memory that all requests together may use, in addition to that of an idle server.
const ABOVE_IDLE_MAX: usize = 200 * MIB;
/// The same, with as many decisions that each store a result of 2 MiB at once. 127 MB are live at the peak; measured
/// were 163 to 190 MiB, depending on what the C allocator keeps.
const WITH_DECISIONS_MAX: usize = 256 * MIB;
const WORST_REQUESTS: usize = 24;
const SMALL_GETS: usize = 12;

/// As many objects with one entry as fit: no other JSON of this length uses more memory.
fn objects(bytes: usize) -> String {
    let item = r#"{"":0},"#;
    format!("[{}0]", item.repeat((bytes - 3) / item.len()))
}

/// The same with as many values as the server accepts, and about this many bytes.
fn dearest(bytes: usize) -> String {
    let count = 24_900;
    let text = "x".repeat(bytes / count - 8);
    format!("[{}0]", format!(r#"{{"":"{text}"}},"#).repeat(count))
}

fn at_once(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for place in 0..count {
            let work = &work;
            scope.spawn(move || work(place));
        }
    });
}

fn configured(tool: &CalledTool) -> Folder {
    let folder = Folder::new();
    let script = json!({"rules": [
        {"when": "pick", "replies": [{"tool_calls": [{"id": "call_0", "name": "pick"}]}, {"text": "Done."}]},
        {"when": ".*", "replies": [{"tool_calls": [{"id": "call_0", "name": "look"}]}, {"text": "Done."}]},
    ]});
    write(&folder, "script.json", &script.to_string());
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[models.script]\nprovider = \"scripted\"\nscript = \"script.json\"\n\
         [tools.pick]\nkind = \"client\"\ndescription = \"Picks\"\nparameters = {{ type = \"object\" }}\n\
         [tools.look]\nkind = \"http\"\nurl = \"http://{}/look\"\ndescription = \"Looks\"\neffect = \"read\"\n\
         parameters = {{ type = \"object\" }}\n\
         [agents.clerk]\nmodel = \"script\"\ntools = [\"pick\", \"look\"]\n",
        tool.address
    );
    write(&folder, "holdpoint.toml", &text);
    folder
}

fn post(server: &Server, path: &str, body: &str) -> (u16, Value) {
    call(server.address(), "POST", path, &[("content-type", "application/json")], body)
}

#[test]
fn the_worst_requests_results_and_reads_stay_within_their_memory() {
    let body = objects(MIB - 100);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let tool = CalledTool::answering(vec![answer.leak()]);
    let folder = configured(&tool);
    let server = Server::start(folder.path(), &["serve"]);
    // One request of each kind first, so that one-time allocations are not measured.
    let run = server.begin("clerk", "pick");
    server.run_with(&run, "waiting_tool");
    let idle = server.memory_bytes("VmRSS");

    let refused = format!(r#"{{"agent":"clerk","content":{}}}"#, objects(2 * MIB - 100));
    let (_, thread) = server.post("/v1/threads", &json!({}));
    let path = format!("/v1/threads/{}/messages", thread["id"].as_str().expect("it has an id"));
    at_once(WORST_REQUESTS, |_| {
        let (code, error) = post(&server, &path, &refused);
        assert_eq!((code, &error["error"]["code"]), (413, &json!("TOO_LARGE")), "{error}");
    });
    let after_refusals = server.memory_bytes("VmHWM");

    let result = dearest(2 * MIB - 200);
    let decision = format!(r#"{{"decisions":[{{"call_id":"call_0","action":"resume","result":{result}}}]}}"#);
    let (_, said) = post(&server, &format!("/v1/runs/{run}/decisions"), &decision);
    assert_eq!(said["results"][0]["outcome"], "applied", "{said}");
    server.run_with(&run, "completed");
    at_once(SMALL_GETS, |place| {
        let what = ["calls", "events?limit=100"][place % 2];
        let shown = server.text(&format!("/v1/runs/{}/{what}", run));
        assert!(shown.len() > result.len(), "{what}: {}", shown.len());
    });
    let after_reads = server.memory_bytes("VmHWM");

    let looks: Vec<String> = (0..8).map(|_| server.begin("clerk", "look")).collect();
    for run in &looks {
        server.run_with(run, "completed");
        let (_, calls) = server.get(&format!("/v1/runs/{run}/calls"));
        assert_eq!(calls["calls"][0]["result"].as_str().map(str::len), Some(body.len()), "kept as text");
    }
    let after_results = server.memory_bytes("VmHWM");

    let runs: Vec<String> = (0..WORST_REQUESTS).map(|_| server.begin("clerk", "pick")).collect();
    at_once(WORST_REQUESTS, |place| {
        server.run_with(&runs[place], "waiting_tool");
        let path = format!("/v1/runs/{}/decisions", runs[place]);
        // A request that is refused with 429 is sent again.
        let applied = (0..100).any(|_| {
            let (code, said) = post(&server, &path, &decision);
            assert!(code == 200 || code == 429, "{said}");
            code == 200 && said["results"][0]["outcome"] == "applied"
        });
        assert!(applied);
        server.run_with(&runs[place], "completed");
    });
    let after_decisions = server.memory_bytes("VmHWM");

    let above = |bytes: usize| bytes.saturating_sub(idle) / MIB;
    println!(
        "above idle ({} MiB): refusals {} MiB, reads {} MiB, results {} MiB, decisions {} MiB",
        idle / MIB,
        above(after_refusals),
        above(after_reads),
        above(after_results),
        above(after_decisions)
    );
    assert!(
        after_results - idle < ABOVE_IDLE_MAX,
        "it took {} MiB above idle: {} after refusals, {} after reads",
        above(after_results),
        above(after_refusals),
        above(after_reads)
    );
    assert!(
        after_decisions - idle < WITH_DECISIONS_MAX,
        "with {WORST_REQUESTS} stored results it took {} MiB above idle",
        above(after_decisions)
    );
}
