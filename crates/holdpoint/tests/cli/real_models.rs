//! A server with a model provider: requests, cancelled requests, fallback models, and a key that is never shown.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_tool::{ReceivedRequest, accept_connections, in_turn};
use crate::program::{CommandOutput, Folder};
use crate::server::{Server, write};

const KEY: &str = "sk-test-0123456789abcdef";
const VARIABLE: &str = "HOLDPOINT_TEST_KEY";

/// What happens at a provider.
enum Seen {
    Request(ReceivedRequest),
    /// The client closed the connection in the middle of the response.
    Left,
}

/// A provider that is compatible with OpenAI. It gives each connection the next answer, and then repeats the last one.
fn provider(answers: Vec<&'static str>) -> (String, Receiver<Seen>) {
    let (sender, seen) = mpsc::channel();
    let mut next = in_turn(answers);
    let address = accept_connections(move |stream| {
        let (answer, sender) = (next(), sender.clone());
        std::thread::spawn(move || converse(stream, answer, &sender));
    });
    (format!("http://{address}/v1/"), seen)
}

/// If the answer ends in the middle of a stream, waits until the client closes the connection.
fn converse(mut stream: TcpStream, answer: &str, seen: &mpsc::Sender<Seen>) {
    let Some(asked) = ReceivedRequest::read(&stream) else { return };
    let _ = seen.send(Seen::Request(asked));
    let _ = stream.write_all(answer.as_bytes());
    if !answer.ends_with("[DONE]\n\n") && answer.starts_with("HTTP/1.1 200") {
        let _ = stream.read(&mut [0; 16]);
        let _ = seen.send(Seen::Left);
    }
}

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Good \"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"morning.\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3}}\n\n\
    data: [DONE]\n\n";
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Good \"}}]}\n\n";
const BUSY: &str =
    "HTTP/1.1 429 Too Many\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const WRONG: &str = "HTTP/1.1 401 No\r\nconnection: close\r\n\r\n\
    {\"error\":{\"message\":\"Incorrect API key provided: sk-test-0123456789abcdef\"}}";

fn configured(url: &str) -> Folder {
    let folder = Folder::new();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[models.main]\nprovider = \"openai_compatible\"\nmodel = \"small\"\n\
         base_url = \"{url}\"\napi_key_env = \"{VARIABLE}\"\nparams = {{ temperature = 0.5 }}\n\
         [agents.clerk]\nmodel = \"main\"\ninstructions = \"Be kind.\"\n"
    );
    write(&folder, "holdpoint.toml", &text);
    folder
}

fn started(folder: &Folder) -> Server {
    Server::start_with(folder.path(), &["serve"], &[(VARIABLE, OsStr::new(KEY))])
}

fn next(seen: &Receiver<Seen>) -> Seen {
    seen.recv_timeout(Duration::from_secs(60)).expect("the provider sees something")
}

#[test]
fn a_model_behind_an_address_answers_and_its_tokens_are_counted() {
    let (url, seen) = provider(vec![BUSY, HELLO]);
    let folder = configured(&url);
    let server = started(&folder);

    let run = server.begin("clerk", "Hello");
    let ended = server.run_with(&run, "completed");

    assert_eq!(ended["usage"], json!({"input_tokens": 12, "output_tokens": 3}));
    let events = server.get(&format!("/v1/runs/{run}/events")).1.to_string();
    assert!(events.contains("model.retrying") && events.contains("Good morning."), "{events}");
    for _ in 0..2 {
        let Seen::Request(ReceivedRequest { head, body }) = next(&seen) else { panic!("it was asked twice") };
        assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")), "{head}");
        assert_eq!((&body["model"], &body["temperature"]), (&json!("small"), &json!(0.5)));
        assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be kind."}));
    }
}

#[test]
fn an_interrupted_run_leaves_its_provider() {
    let (url, seen) = provider(vec![HALF]);
    let folder = configured(&url);
    let server = started(&folder);
    let run = server.begin("clerk", "Hello");
    let Seen::Request(..) = next(&seen) else { panic!("it is asked first") };

    let (code, _) = server.post_nothing(&format!("/v1/runs/{run}/interrupt"));

    assert_eq!(code, 202);
    let Seen::Left = next(&seen) else { panic!("it is asked once") };
    server.run_with(&run, "interrupted");
}

#[test]
fn a_key_that_the_provider_echoes_is_never_shown() {
    let (url, _seen) = provider(vec![WRONG]);
    let folder = configured(&url);
    let server = started(&folder);
    let run = server.begin("clerk", "Hello");

    let failed = server.run_with(&run, "failed");

    assert_eq!(failed["error"]["code"], "MODEL_ERROR", "{failed}");
    let message = failed["error"]["message"].as_str().expect("a message");
    assert!(message.contains("it answered 401: Incorrect API key provided: [key]"), "{message}");
    let events = server.get(&format!("/v1/runs/{run}/events")).1.to_string();
    server.signal("TERM");
    let (code, said) = server.ended();
    assert_eq!(code, Some(0));
    assert!(!format!("{failed}{events}{said:?}").contains("sk-test-01"));
}

#[test]
fn a_key_that_is_not_there_keeps_a_server_from_starting_and_check_says_so() {
    let folder = configured("http://127.0.0.1:9/v1");
    let program = |argument: &str, key: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(folder.path()).arg(argument).env_remove(VARIABLE);
        CommandOutput::capture(command.envs(key.map(|key| (VARIABLE, key))))
    };
    let unset = format!(
        "holdpoint.toml:7: models.main.api_key_env: the environment variable {VARIABLE} is not set; set it to the provider's key\n"
    );

    let served = program("serve", None);
    assert_eq!((served.code, served.err), (Some(2), unset.clone()));
    let served = program("serve", Some("two words"));
    assert_eq!((served.code, served.err), (Some(2), unset.replace("is not set", "holds no key")));

    let checked = program("check", None);
    assert_eq!((checked.code, checked.err.as_str()), (Some(2), unset.as_str()), "{checked:?}");
    assert!(checked.out.starts_with("holdpoint.toml: OK\n"), "the settings are printed: {}", checked.out);
    let checked = program("check", Some(KEY));
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
}

fn with_backup(main: &str, backup: &str) -> Folder {
    let folder = Folder::new();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [models.main]\nprovider = \"openai_compatible\"\nmodel = \"small\"\nbase_url = \"{main}\"\n\
         [models.backup]\nprovider = \"openai_compatible\"\nmodel = \"other\"\nbase_url = \"{backup}\"\n\
         [agents.clerk]\nmodels = [\"main\", \"backup\"]\n"
    );
    write(&folder, "holdpoint.toml", &text);
    folder
}

#[test]
fn the_next_model_of_an_agent_answers_when_the_first_has_failed_three_times() {
    let (main, seen_by_main) = provider(vec![WRONG]);
    let (backup, _) = provider(vec![HELLO]);
    let folder = with_backup(&main, &backup);
    let checked = folder.run(&["check"]);
    assert!(
        checked.out.contains("model: main (openai_compatible), then backup (openai_compatible)\n"),
        "{checked:?}"
    );
    let server = Server::start(folder.path(), &["serve"]);

    let run = server.begin("clerk", "Hello");
    server.run_with(&run, "completed");

    for _ in 0..3 {
        let Seen::Request(..) = next(&seen_by_main) else { panic!("it was asked three times") };
    }
    assert!(seen_by_main.try_recv().is_err(), "the model is not called a fourth time");
    let (_, listed) = server.get(&format!("/v1/runs/{run}/events"));
    let events = listed["events"].as_array().expect("a list");
    let errors = events.iter().filter(|event| event["type"] == "model.retrying");
    let errors: Vec<&str> = errors.filter_map(|event| event["payload"]["error"].as_str()).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[2].starts_with("main: ") && errors[2].ends_with("; backup is asked next"), "{errors:?}");
    assert_eq!(answered_by(events), ["backup"], "{listed}");
    assert!(listed.to_string().contains("Good morning."), "{listed}");
}

/// The models that the log names for the answers of a run.
fn answered_by(events: &[Value]) -> Vec<&str> {
    let messages = events.iter().filter(|event| event["type"] == "message.added");
    messages.filter_map(|event| event["payload"]["message"]["model"].as_str()).collect()
}

#[test]
fn a_step_that_fell_back_continues_with_the_same_model_after_a_kill() {
    let (main, seen_by_main) = provider(vec![WRONG]);
    let (backup, seen_by_backup) = provider(vec![HALF, HELLO]);
    let folder = with_backup(&main, &backup);
    let server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("clerk", "Hello");
    let Seen::Request(..) = next(&seen_by_backup) else { panic!("it is asked after the first model") };
    server.kill();

    let server = Server::start(folder.path(), &["serve"]);
    server.run_with(&run, "completed");

    let asked = seen_by_backup.try_iter().filter(|seen| matches!(seen, Seen::Request(..))).count();
    assert_eq!(asked, 1, "the lost request is sent again to the same model");
    assert_eq!(seen_by_main.try_iter().count(), 3, "the first model is not tried again");
    let (_, listed) = server.get(&format!("/v1/runs/{run}/events"));
    assert_eq!(answered_by(listed["events"].as_array().expect("a list")), ["backup"], "{listed}");
    let thread = listed["events"][0]["thread_id"].as_str().expect("a thread");
    let (_, messages) = server.get(&format!("/v1/threads/{thread}/messages"));
    assert_eq!(messages["messages"][1]["model"], "backup", "{messages}");
}

const SIGNATURE: &str = "c2lnbmVkIGJ5IGl0cyBwcm92aWRlcg";
const THOUGHTFUL: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"Hm.\"}}\n\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\
    \"signature\":\"c2lnbmVkIGJ5IGl0cyBwcm92aWRlcg\"}}\n\n\
    data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
    data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_1\",\
    \"name\":\"write_file\",\"input\":{\"path\":\"a.txt\",\"text\":\"A\"}}}\n\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n\
    data: {\"type\":\"message_stop\"}\n\n";
const WRITTEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Written.\"}}\n\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
    data: {\"type\":\"message_stop\"}\n\n";

#[test]
fn signed_reasoning_is_sent_back_after_a_kill_and_never_shown() {
    let (url, seen) = provider(vec![THOUGHTFUL, WRITTEN]);
    let folder = Folder::new();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[models.main]\nprovider = \"anthropic\"\nmodel = \"m-1\"\nbase_url = \"{url}\"\n\
         params = {{ thinking = {{ type = \"enabled\", budget_tokens = 1024 }} }}\n\
         [tools.write_file]\nkind = \"builtin\"\nfolder = \"written\"\n\
         [agents.clerk]\nmodel = \"main\"\ntools = [\"write_file\"]\n"
    );
    write(&folder, "holdpoint.toml", &text);
    let server = Server::start(folder.path(), &["serve"]);
    let run = server.begin("clerk", "Write it.");
    let held = server.run_with(&run, "waiting_approval");
    let approval = held["pending"][0]["approval_id"].as_str().expect("an approval").to_owned();
    server.kill();

    let server = Server::start(folder.path(), &["serve"]);
    assert_eq!(server.post_nothing(&format!("/v1/approvals/{approval}/approve")).0, 200);
    let ended = server.run_with(&run, "completed");

    let asked: Vec<Value> = seen
        .try_iter()
        .filter_map(|seen| match seen {
            Seen::Request(asked) => Some(asked.body),
            Seen::Left => None,
        })
        .collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(
        asked[1]["messages"][1]["content"][0],
        json!({"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE})
    );
    let thread = ended["thread_id"].as_str().expect("a thread");
    let paths = ["events", "calls", "transcript", "state"].map(|part| format!("/v1/runs/{run}/{part}"));
    for path in paths.into_iter().chain([format!("/v1/threads/{thread}/messages")]) {
        let shown = server.text(&path);
        assert!(!shown.contains(SIGNATURE), "{path}: {shown}");
    }
}
