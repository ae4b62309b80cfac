//! Secrets, and the texts of people, models and tools, appear only in the outputs where they belong.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::{Value, json};

use crate::program::{CommandOutput, Folder};
use crate::server::{CONFIGURATION, Server, call, configured, write};

/// The token of a key of tenant `acme`, and its SHA-256.
const TOKEN: &str = "open sesame";
const SHA256: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";
/// The same for tenant `other`.
const STRANGERS_TOKEN: &str = "strangers-token-0000";
const STRANGERS_SHA256: &str = "ec63387b77890a0cdee48fa5c64e6852348efaf0e27e5c205db9479d56c0b44c";
const WRONG_TOKEN: &str = "wrong-token-4711";
const COOKIE: &str = "cookie-4712";
const API_KEY: &str = "sk-api-key-4713";
const PASSWORD: &str = "password-4714";
const IN_THE_ADDRESS: &str = "address-4715";
const MESSAGE: &str = "message-4716";
const ARGUMENT: &str = "argument-4717";
const ANSWER: &str = "answer-4718";
const WORDS: &str = "words-4719";
const NOTE: &str = "note-4720";
const INVALID: &str = "invalid-4721";

/// Collected outputs, each with the name of its source.
#[derive(Default)]
struct Outputs(Vec<(&'static str, String)>);

impl Outputs {
    fn add(&mut self, name: &'static str, text: impl ToString) {
        self.0.push((name, text.to_string()));
    }

    /// The names of the outputs that contain the secret.
    fn with(&self, secret: &str) -> Vec<&'static str> {
        let mut found: Vec<&'static str> =
            self.0.iter().filter(|(_, text)| text.contains(secret)).map(|(name, _)| *name).collect();
        found.dedup();
        found
    }
}

fn with_keys() -> Folder {
    let script = json!({"rules": [{"when": ".*", "replies": [
        {"tool_calls": [
            {"id": "call_1", "name": "echo", "arguments": {"text": ANSWER}},
            {"id": "call_2", "name": "write_file", "arguments": {"path": "a.txt", "text": ARGUMENT}},
            {"id": "call_3", "name": "boom", "arguments": {}},
        ]},
        {"text": WORDS},
    ]}]});
    let folder = configured(&script);
    let keys = format!(
        "{}\n[tools.echo]\nkind = \"builtin\"\n\n[tools.boom]\nkind = \"builtin\"\n\n\
         [[auth.keys]]\nname = \"ann\"\nsha256 = \"{SHA256}\"\ntenant = \"acme\"\nroles = [\"admin\", \"operator\"]\n\n\
         [[auth.keys]]\nname = \"eve\"\nsha256 = \"{STRANGERS_SHA256}\"\ntenant = \"other\"\nroles = [\"admin\"]\n",
        CONFIGURATION.replace("\"sleep\", ", "\"sleep\", \"echo\", \"boom\", ")
    );
    write(&folder, "holdpoint.toml", &keys);
    folder
}

/// Sends a request with this token, and with a cookie that no log may contain.
fn ask(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let headers =
        [("authorization", bearer.as_str()), ("cookie", COOKIE), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call(server.address(), method, path, &headers, &body)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}

/// Posts a message, approves the held call and waits until the run ends. Returns the id of the run.
fn story(server: &Server, outputs: &mut Outputs) -> String {
    let ann = |method: &str, path: &str, body: &Value| ask(server, TOKEN, method, path, body);
    assert_eq!(ann("POST", "/v1/threads", &json!({"id": "t"})).0, 201);
    let message = json!({"agent": "clerk", "text": MESSAGE});
    let (code, posted) = ann("POST", "/v1/threads/t/messages", &message);
    assert_eq!(code, 202, "{posted}");
    let run = text(&posted, "run_id");
    let path = format!("/v1/runs/{run}");
    let held = loop {
        let (_, seen) = ann("GET", &path, &Value::Null);
        if seen["status"] == "waiting_approval" {
            break seen;
        }
    };
    let approval = text(&held["pending"][0], "approval_id");
    outputs.add("approvals", ann("GET", "/v1/approvals", &Value::Null).1);
    let approve = format!("/v1/approvals/{approval}/approve");
    outputs.add("refusals", ann("POST", &approve, &json!({"misspelt": INVALID})).1);
    let (code, approved) = ann("POST", &approve, &json!({"note": NOTE}));
    assert_eq!(code, 200, "{approved}");
    outputs.add("approvals", approved);
    while ann("GET", &path, &Value::Null).1["status"] != "completed" {}
    outputs.add("events", ann("GET", &format!("{path}/events?limit=1000"), &Value::Null).1);
    outputs.add("transcript", ann("GET", &format!("{path}/transcript"), &Value::Null).1);
    run
}

/// Runs correct and wrong commands, against a running server and a missing one.
fn ask_with_the_program(server: &Server, run: &str, token: &str, outputs: &mut Outputs) {
    let address = format!("http://{}", server.address());
    let with_a_password = format!("http://ann:{PASSWORD}@{}", server.address());
    for url in [address.as_str(), "http://127.0.0.1:1", &with_a_password] {
        for arguments in [
            &["runs"][..],
            &["runs", "show", run],
            &["runs", "show", "run_0"],
            &["runs", "watch", "run_0"],
            &["runs", "interrupt", run],
            &["approvals"],
            &["approvals", "approve", "apr_0", "--yes", "--expect-digest", "d"],
            &["approvals", "answer", "apr_0", "--result", "no JSON"],
            &["replay", "run_0"],
            &["runs", "list", "--limit", "0"],
        ] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
            program.args(arguments).env("HOLDPOINT_URL", url).env("HOLDPOINT_TOKEN", token);
            let said = CommandOutput::capture(&mut program);
            outputs.add("the program that asks", format!("{}{}", said.out, said.err));
            let said = CommandOutput::capture(program.arg("--json"));
            outputs.add("the program that asks", format!("{}{}", said.out, said.err));
        }
    }
}

#[test]
fn secrets_appear_only_where_they_belong() {
    let folder = with_keys();
    let mut outputs = Outputs::default();
    let variables = [("OPENAI_API_KEY", OsStr::new(API_KEY)), ("HOLDPOINT_TOKEN", OsStr::new(TOKEN))];
    let serve = ["serve", "--log", "json", "--log-level", "trace"];
    let server = Server::start_with(folder.path(), &serve, &variables);
    let run = story(&server, &mut outputs);

    let nothing = &Value::Null;
    outputs.add("refusals", ask(&server, WRONG_TOKEN, "GET", "/v1/runs", nothing).1);
    outputs
        .add("refusals", ask(&server, TOKEN, "GET", &format!("/v1/runs?cursor={IN_THE_ADDRESS}"), nothing).1);
    for path in ["/v1/runs", "/v1/threads", "/v1/approvals?status=approved"] {
        outputs.add("what strangers see", ask(&server, STRANGERS_TOKEN, "GET", path, nothing).1);
    }
    for path in [format!("/v1/runs/{run}"), format!("/v1/runs/{run}/events"), "/v1/threads/t/messages".into()]
    {
        let (code, refused) = ask(&server, STRANGERS_TOKEN, "GET", &path, nothing);
        assert_eq!(code, 404, "{refused}");
        outputs.add("what strangers see", refused);
    }
    for path in ["/metrics", "/openapi.json", "/v1/agents"] {
        let (code, shown) = ask(&server, TOKEN, "GET", path, nothing);
        assert_eq!(code, 200, "{path}");
        outputs.add("metrics, document and agents", shown);
    }
    for token in [TOKEN, WRONG_TOKEN] {
        ask_with_the_program(&server, &run, token, &mut outputs);
    }
    // Mistakes in the configuration, next to secrets.
    let file = folder.path().join("holdpoint.toml");
    let good = std::fs::read_to_string(&file).expect("it is there");
    for bad in [
        format!("[store]\nurl = \"postgres://ann:{PASSWORD}@"),
        format!("[store]\nurl = \"postgres:/ann:{PASSWORD}@localhost/runs\"\n"),
        good.replace(&format!("sha256 = \"{SHA256}\""), &format!("sha256 = \"{TOKEN}\"")),
        good.replace(&format!("sha256 = \"{SHA256}\""), &format!("token = \"{TOKEN}\"")),
        format!("{good}\n[store]\nurl = \"postgres://ann:{PASSWORD}@localhost/runs\"\n"),
    ] {
        write(&folder, "holdpoint.toml", &bad);
        let (code, refused) = ask(&server, TOKEN, "POST", "/v1/admin/reload", nothing);
        assert_eq!(code, 400, "{refused}");
        outputs.add("refusals", refused);
        for arguments in [&["check"][..], &["check", "--json"]] {
            let said = folder.run(arguments);
            outputs.add("check", format!("{}{}", said.out, said.err));
        }
    }
    write(&folder, "holdpoint.toml", &good);
    let said = folder.run(&["check"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    outputs.add("check", format!("{}{}", said.out, said.err));
    server.signal("TERM");
    let (code, said) = server.ended();
    assert_eq!(code, Some(0), "{said:#?}");
    assert!(said.len() > 30, "a log at level trace has many lines: {}", said.len());
    outputs.add("the log", said.join("\n"));

    for secret in [
        TOKEN,
        SHA256,
        STRANGERS_TOKEN,
        STRANGERS_SHA256,
        WRONG_TOKEN,
        COOKIE,
        API_KEY,
        PASSWORD,
        IN_THE_ADDRESS,
        INVALID,
    ] {
        assert_eq!(outputs.with(secret), [""; 0], "{secret}");
    }
    for (said, belongs) in [
        (MESSAGE, &["events", "transcript"][..]),
        (ANSWER, &["events", "transcript"]),
        (ARGUMENT, &["approvals", "events", "transcript"]),
        // `runs show` prints the final answer.
        (WORDS, &["events", "transcript", "the program that asks"]),
        (NOTE, &["approvals", "events"]),
    ] {
        assert_eq!(outputs.with(said), belongs, "{said}");
    }
}

#[test]
fn the_password_of_a_store_that_cannot_be_reached_or_read_is_not_repeated() {
    let folder = configured(&json!({"rules": [{"when": ".*", "replies": [{"text": "Hello."}]}]}));
    // No process listens on port 1.
    for address in [
        format!("postgres://ann:{PASSWORD}@127.0.0.1:1/runs"),
        format!("postgres://127.0.0.1:1/runs?user=ann&password={PASSWORD}"),
        format!("postgres://ann:{PASSWORD}@127.0.0.1:{PASSWORD}/runs"),
        format!("postgres://ann:{PASSWORD}@127.0.0.1:1/runs?port={PASSWORD}"),
        format!("postgres://ann:{PASSWORD}@127.0.0.1:1/runs?sslmode={PASSWORD}"),
        format!("postgres://ann:{PASSWORD}@127.0.0.1:1/runs?{PASSWORD}=1"),
        format!("postgres://ann:{PASSWORD}@127.0.0.1:1/%zz{PASSWORD}"),
    ] {
        for command in [&["serve", "--log-level", "trace"][..], &["check"], &["size"], &["serve", "--json"]] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
            let said = CommandOutput::capture(
                program.current_dir(folder.path()).args(command).args(["--store", &address]),
            );
            assert_ne!(said.code, Some(0), "{address}: {said:?}");
            assert!(!said.err.contains(PASSWORD) && !said.out.contains(PASSWORD), "{address}: {said:?}");
        }
    }
}
