//! What a hook is sent in each phase, and what it stores for itself.

use engine::agent::Agent;
use engine::plugin::Phase;
use serde_json::{Value, json};
use tools::http::{EndpointError, HookSettings, HttpHook, HttpSettings, SigningSecret};

use crate::harness::{HeldClock, Ran, Scripted, Stored, hook, look, message, next_event, run, settings};
use crate::server::{HookServer, Turn};

/// The fields that differ between phases, without the ids of thread and run.
fn subject(question: &Value) -> Value {
    let mut fields = question.as_object().unwrap().clone();
    for always in ["plugin", "tenant", "agent", "thread_id", "run_id", "usage", "state"] {
        assert!(fields.remove(always).is_some(), "{always} is sent: {question}");
    }
    Value::Object(fields)
}

#[tokio::test(start_paused = true)]
async fn each_phase_is_asked_once_in_its_place_and_says_what_it_is_about() {
    let _clock = HeldClock::new();
    let server = HookServer::serving([]).await;
    let seen = run(hook(&server.url(), Phase::ALL)).await;
    let questions = server.questions();
    let user = json!({"id": "m1", "role": "user", "content": "go"});
    let assistant_id = questions[8]["messages"][1]["id"].clone();
    let asked_for = json!({"id": assistant_id, "role": "assistant", "content": "",
        "tool_calls": [{"call_id": "a", "tool": "look", "arguments": {"n": 1}}]});
    let tool = json!({"id": "msg_a", "role": "tool", "content": "seen", "call_id": "a"});
    let expected = [
        json!({"phase": "run_start", "step": 0}),
        json!({"phase": "step_start", "step": 1}),
        json!({"phase": "before_inference", "step": 1, "messages": [user]}),
        json!({"phase": "after_inference", "step": 1,
            "answer": {"text": "", "calls": [{"index": 0, "tool": "look", "arguments": {"n": 1}}]}}),
        json!({"phase": "before_tool_execute", "step": 1, "call": {"call_id": "a", "tool": "look"}, "arguments": {"n": 1}}),
        json!({"phase": "after_tool_execute", "step": 1,
            "call": {"call_id": "a", "tool": "look", "status": "succeeded"}, "arguments": {"n": 1}, "result": "seen"}),
        json!({"phase": "step_end", "step": 1}),
        json!({"phase": "step_start", "step": 2}),
        json!({"phase": "before_inference", "step": 2, "messages": [user, asked_for, tool]}),
        json!({"phase": "after_inference", "step": 2, "answer": {"text": "Done.", "calls": []}}),
        json!({"phase": "step_end", "step": 2}),
        json!({"phase": "run_end", "step": 2, "termination": {"reason": "natural_end"}}),
    ];
    let found: Vec<Value> = questions.iter().map(subject).collect();
    assert_eq!(found, expected);
    assert!(!seen.names().contains(&"phase.answered".to_owned()), "empty answers are not recorded");
}

#[tokio::test(start_paused = true)]
async fn a_hook_gets_back_what_it_stored_for_the_run_and_for_the_thread_and_nothing_of_others() {
    let _clock = HeldClock::new();
    let set =
        |scope: &str, value: Value| json!({"type": "set_state", "key": "k", "scope": scope, "value": value});
    let stores = Turn::actions(&[set("run", json!(1)), set("thread", json!({"a": [2]}))]);
    let other = HookServer::serving([Turn::actions(&[set("run", json!("other"))])]).await;
    let server = HookServer::serving([stores]).await;
    let (ran, model, stored) = (Ran::default(), Scripted::new(), Stored::new());
    let mut of_other = settings(&other.url(), [Phase::RunStart]);
    of_other.name = "other".into();
    let agent = Agent::new("assistant", model).tool(look(&ran));
    let agent = agent
        .plugin(HttpHook::new(&of_other).unwrap())
        .plugin(hook(&server.url(), [Phase::RunStart, Phase::StepEnd]));
    let engine = stored.start(agent).await;
    for number in 0..2 {
        let message = engine::posting::Message { message_id: None, ..message() };
        let (_, mut watched) = engine.stream(message.on_thread("t")).await.unwrap();
        while next_event(&mut watched).await.is_some() {}
        let of_run = if number == 0 { json!({"k": 1}) } else { json!({}) };
        let states: Vec<Value> = server.questions().iter().map(|asked| asked["state"].clone()).collect();
        assert_eq!(states.last(), Some(&json!({"run": of_run, "thread": {"k": {"a": [2]}}})));
        assert_eq!(states[0], json!({"run": {}, "thread": {}}));
    }
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_is_signed_and_identified_by_its_content() {
    let _clock = HeldClock::new();
    let server = HookServer::serving([]).await;
    let plain = settings(&server.url(), [Phase::RunStart, Phase::StepStart]);
    let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let http = HttpSettings { signing_secret: secret, ..plain.http.clone() };
    run(HttpHook::new(&HookSettings { http, ..plain }).unwrap()).await;
    let heads = server.heads();
    let header = |head: &str, name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    assert!(heads[0].starts_with("post /hook http/1.1\r\n"), "{}", heads[0]);
    let id = header(&heads[0], "webhook-id").unwrap();
    assert!(id.starts_with("hook_") && id.len() == 5 + 64, "{id}");
    assert_ne!(Some(id), header(&heads[1], "webhook-id"), "another question");
    assert!(header(&heads[0], "webhook-signature").unwrap().starts_with("v1,"));
    assert!(header(&heads[0], "webhook-timestamp").is_some());
}

#[test]
fn a_hook_has_the_address_rules_of_a_tool() {
    for url in ["ftp://example.com", "example.com", "http://ann:secret@example.com/x"] {
        let made = HttpHook::new(&settings(url, [Phase::RunStart]));
        assert_eq!(made.err(), Some(EndpointError::BadUrl), "{url}");
    }
}
