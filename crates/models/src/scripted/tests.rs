//! Tests of the scripted model: which rule answers, in which deltas, when, and the errors for a bad script.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use engine::live::{Deltas, Part};
use engine::model::{Messages, Model, ModelAnswer, ModelCall, ModelFailure, ModelMessage, ModelRequest};
use engine::store::Tenant;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{Reply, Script, ScriptedModel};

fn request(messages: impl IntoIterator<Item = ModelMessage>, ordinal: u32) -> ModelRequest {
    ModelRequest {
        tenant: Tenant::default(),
        thread: "thr_1".into(),
        run: "run_1".into(),
        step: ordinal,
        attempt: 1,
        ordinal,
        message_id: "msg_1".into(),
        instructions: Arc::from(""),
        messages: messages.into_iter().collect::<Messages>(),
        tools: Vec::new(),
        output_schema: None,
        params: Vec::new(),
    }
}

fn user(content: Value) -> ModelMessage {
    ModelMessage::User { id: "msg_0".into(), content: Arc::new(content), by: None }
}

async fn asked(model: &ScriptedModel, said: &str, ordinal: u32) -> Result<ModelAnswer, ModelFailure> {
    model.answer(request([user(json!(said))], ordinal), Deltas::discarding()).await
}

fn model(script: &str) -> ScriptedModel {
    ScriptedModel::new(Script::from_json(script).unwrap())
}

fn mistake(script: &str) -> String {
    Script::from_json(script).unwrap_err().to_string()
}

fn mistake_in_reply(reply: &str) -> String {
    mistake(&format!(r#"{{"rules": [{{"when": ".*", "replies": [{{"text": "a"}}, {reply}]}}]}}"#))
}

fn failure(message: &str, retryable: bool, retry_after_ms: Option<u64>) -> ModelFailure {
    ModelFailure { message: message.to_owned(), retryable, retry_after_ms }
}

#[tokio::test]
async fn the_script_of_the_contract_is_served_reply_by_reply() {
    let model = model(
        r#"{"rules":[{"when":".*","replies":[
  {"tool_calls":[{"id":"call_0","name":"transfer","arguments":{"to":"bob","amount":5}}],"usage":{"input_tokens":10,"output_tokens":5}},
  {"text":"Done.","delta_chars":4,"delay_ms":0},
  {"error":{"status":500,"message":"overloaded"}}]}]}"#,
    );

    let mut first = ModelAnswer::default().calling("call_0", "transfer", json!({"to": "bob", "amount": 5}));
    first.usage.input_tokens = 10;
    first.usage.output_tokens = 5;
    assert_eq!(asked(&model, "pay bob", 1).await, Ok(first));
    assert_eq!(asked(&model, "pay bob", 2).await, Ok(ModelAnswer::text("Done.")));
    assert_eq!(asked(&model, "pay bob", 3).await, Err(failure("500: overloaded", true, None)));
}

#[tokio::test]
async fn the_last_reply_repeats() {
    let model = ScriptedModel::replying([Reply::text("a"), Reply::text("b")]);

    assert_eq!(asked(&model, "", 3).await, Ok(ModelAnswer::text("b")));
    assert_eq!(asked(&model, "", u32::MAX).await, Ok(ModelAnswer::text("b")));
}

#[tokio::test]
async fn the_first_rule_that_matches_serves_although_a_later_one_matches_too() {
    let model = model(
        r#"{"rules": [{"when": "^pay", "replies": [{"text": "first"}]},
                      {"when": "bob$", "replies": [{"text": "second"}]},
                      {"when": ".*", "replies": [{"text": "third"}]}]}"#,
    );

    assert_eq!(asked(&model, "pay bob", 1).await, Ok(ModelAnswer::text("first")));
    assert_eq!(asked(&model, "greet bob", 1).await, Ok(ModelAnswer::text("second")));
    assert_eq!(asked(&model, "greet eve", 1).await, Ok(ModelAnswer::text("third")));
}

#[tokio::test]
async fn without_a_matching_rule_the_call_fails_permanently_with_a_reason() {
    let model = model(r#"{"rules": [{"when": "^pay", "replies": [{"text": "Paid."}]}]}"#);

    let why =
        "no rule of the script matches the last user message; add a rule with \"when\": \".*\" at its end";
    assert_eq!(asked(&model, "hello", 1).await, Err(failure(why, false, None)));
}

#[tokio::test]
async fn a_model_without_replies_fails_permanently_with_a_reason() {
    let model = ScriptedModel::replying([]);

    let why = "the script has no reply; give it one";
    assert_eq!(asked(&model, "hello", 1).await, Err(failure(why, false, None)));
}

#[tokio::test]
async fn the_last_user_message_chooses_the_rule() {
    let model = model(
        r#"{"rules": [{"when": "earlier", "replies": [{"text": "wrong"}]},
                      {"when": "latest", "replies": [{"text": "right"}]}]}"#,
    );
    let messages = [
        user(json!("earlier")),
        user(json!("latest")),
        ModelMessage::Assistant {
            id: "msg_1".into(),
            text: "earlier".to_owned(),
            reasoning: None,
            calls: Vec::new(),
            sealed: None,
        },
        ModelMessage::Tool { call: "call_0".into(), text: "earlier".to_owned() },
        ModelMessage::Note { id: "late_call_0".into(), call: "call_0".into(), text: "earlier".to_owned() },
    ];

    let answer = model.answer(request(messages, 1), Deltas::discarding()).await;
    assert_eq!(answer, Ok(ModelAnswer::text("right")));
}

#[tokio::test]
async fn the_texts_of_a_message_in_parts_are_read_as_lines() {
    let model = model(
        r#"{"rules": [{"when": "^pay\nbob\nnow$", "replies": [{"text": "three lines"}]},
                      {"when": "^pay$", "replies": [{"text": "one line"}]},
                      {"when": "^$", "replies": [{"text": "no text"}]}]}"#,
    );
    let cases = [
        (
            json!([{"type": "text", "text": "pay"}, {"type": "image", "url": "a.png"}, {"text": "bob"}, "now"]),
            "three lines",
        ),
        (json!({"type": "text", "text": "pay"}), "one line"),
        (json!([{"type": "image", "url": "a.png"}]), "no text"),
        (Value::Null, "no text"),
    ];

    for (content, expected) in cases {
        let answer = model.answer(request([user(content.clone())], 1), Deltas::discarding()).await;
        assert_eq!(answer, Ok(ModelAnswer::text(expected)), "{content}");
    }
    let answer = model.answer(request([], 1), Deltas::discarding()).await;
    assert_eq!(answer, Ok(ModelAnswer::text("no text")));
}

#[tokio::test]
async fn an_error_is_retryable_depending_on_its_status() {
    let retried: Vec<u16> = (400..=599).filter(|status| is_retried(*status)).collect();

    let expected: Vec<u16> = [429].into_iter().chain(500..=599).collect();
    assert_eq!(retried, expected);
}

fn is_retried(status: u16) -> bool {
    Reply::error(status, "no").outcome().unwrap_err().retryable
}

#[tokio::test]
async fn an_error_carries_when_to_try_again() {
    let read = model(
        r#"{"rules": [{"when": ".*", "replies": [
            {"error": {"status": 429, "message": "slow down", "retry_after_ms": 250}}]}]}"#,
    );
    let built = ScriptedModel::replying([Reply::error(429, "slow down").retry_after_ms(250)]);

    for model in [read, built] {
        assert_eq!(asked(&model, "", 1).await, Err(failure("429: slow down", true, Some(250))));
    }
}

#[tokio::test]
async fn arguments_may_be_any_json_or_text_that_is_none() {
    let model = model(
        r#"{"rules": [{"when": ".*", "replies": [{"tool_calls": [
            {"id": "a", "name": "echo", "arguments": null},
            {"id": "b", "name": "echo", "arguments": [1, "two"]},
            {"id": "c", "name": "echo", "arguments_text": "{\"text\": "},
            {"name": "echo"}]}]}]}"#,
    );

    let call = |id: &str, arguments: &str| ModelCall {
        id: id.to_owned(),
        tool: "echo".to_owned(),
        arguments: arguments.to_owned(),
    };
    let calls = asked(&model, "", 1).await.unwrap().calls;
    assert_eq!(
        calls,
        [call("a", "null"), call("b", r#"[1,"two"]"#), call("c", "{\"text\": "), call("", "{}")]
    );
}

#[test]
fn replies_written_in_rust_are_those_of_the_file() {
    let read = Script::from_json(
        r#"{"rules": [{"when": ".*", "replies": [
            {"text": "Hi", "reasoning": "greet", "delta_chars": 2, "delay_ms": 5, "usage": {"output_tokens": 3},
             "tool_calls": [{"id": "a", "name": "echo", "arguments": {"text": "x"}},
                            {"id": "b", "name": "echo", "arguments_text": "{"}]},
            {"error": {"status": 503, "message": "busy"}, "delay_ms": 7}]}]}"#,
    )
    .unwrap();

    let built = [
        Reply::text("Hi")
            .reasoning("greet")
            .delta_chars(NonZeroUsize::new(2).unwrap())
            .after(Duration::from_millis(5))
            .usage(0, 3)
            .and_call("a", "echo", json!({"text": "x"}))
            .and_call_raw("b", "echo", "{"),
        Reply::error(503, "busy").after(Duration::from_millis(7)),
    ];
    assert_eq!(read.rules[0].replies, built);
}

#[test]
#[should_panic(expected = "`and_call` on a reply that is an error")]
fn an_error_that_asks_for_a_call_is_the_authors_mistake() {
    let _ = Reply::error(500, "no").and_call("a", "echo", json!({}));
}

#[test]
fn each_part_is_one_delta_unless_the_script_cuts_it() {
    let reply = Reply::text("Hello")
        .reasoning("Greet them.")
        .and_call("a", "echo", json!({"n": 1}))
        .and_call_raw("", "echo", "[]");

    let arguments =
        |index, call_id: Option<&str>| Part::Arguments { index, call_id: call_id.map(str::to_owned) };
    assert_eq!(
        reply.deltas(),
        [
            (Part::Reasoning, "Greet them."),
            (Part::Text, "Hello"),
            (arguments(0, Some("a")), r#"{"n":1}"#),
            (arguments(1, None), "[]"),
        ]
    );
}

#[test]
fn deltas_are_cut_by_characters_and_not_by_bytes() {
    let reply = Reply::text("aé日😀z").and_call("a", "echo", json!({"n": 1})).delta_chars(NonZeroUsize::MIN);
    let texts: Vec<&str> = reply.deltas().into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["a", "é", "日", "😀", "z", "{", "\"", "n", "\"", ":", "1", "}"]);

    let reply = Reply::text("Done.").delta_chars(NonZeroUsize::new(4).unwrap());
    assert_eq!(reply.deltas(), [(Part::Text, "Done"), (Part::Text, ".")]);
    let reply = Reply::text("Done.").delta_chars(NonZeroUsize::new(5).unwrap());
    assert_eq!(reply.deltas(), [(Part::Text, "Done.")]);
    assert_eq!(Reply::text("").deltas(), []);
    assert_eq!(Reply::error(500, "no").deltas(), []);
}

#[tokio::test(start_paused = true)]
async fn every_delta_waits_its_delay_and_so_does_a_reply_without_any() {
    let delay = Duration::from_millis(100);
    let cases = [
        (Reply::text("Done.").delta_chars(NonZeroUsize::new(2).unwrap()).after(delay), 300),
        (Reply::text("Done.").after(delay), 100),
        (Reply::text("").after(delay), 100),
        (Reply::error(500, "no").after(delay), 100),
        (Reply::text("Done."), 0),
    ];

    for (reply, expected_ms) in cases {
        let start = Instant::now();
        let _ = asked(&ScriptedModel::replying([reply.clone()]), "", 1).await;
        assert_eq!(start.elapsed(), Duration::from_millis(expected_ms), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_over_at_once() {
    let model = ScriptedModel::replying([Reply::text("late").after(Duration::from_secs(3600))]);
    let start = Instant::now();

    let given_up = timeout(Duration::from_secs(1), asked(&model, "", 1)).await;

    assert!(given_up.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(asked(&model, "", 1).await, Ok(ModelAnswer::text("late")));
}

#[test]
fn a_text_that_is_not_json_is_refused_with_its_line() {
    assert_eq!(
        mistake("{\"rules\": [\n  oops]}"),
        "the script: this is not JSON: expected value at line 2 column 3; correct it there"
    );
    assert!(mistake("").starts_with("the script: this is not JSON: EOF"));
    assert_eq!(mistake("[]"), "the script: invalid type: sequence, expected an object");
}

#[test]
fn a_script_without_rules_or_a_rule_without_replies_is_refused() {
    for empty in ["{}", r#"{"rules": []}"#] {
        assert!(mistake(empty).starts_with("rules: there is no rule; write "), "{empty}");
    }
    for empty in [r#"{"when": "a"}"#, r#"{"when": "a", "replies": []}"#] {
        assert_eq!(
            mistake(&format!(r#"{{"rules": [{empty}]}}"#)),
            "rules[0].replies: the rule has no reply; give it one, for example {\"text\": \"…\"}"
        );
    }
}

#[test]
fn an_unknown_key_is_refused_at_every_level() {
    let in_rule = r#"{"rules": [{"when": "a", "replies": [{"text": "a"}]}, {"wen": "b"}]}"#;
    assert_eq!(mistake(in_rule), "rules[1]: unknown key `wen`; the keys here are when, replies");
    assert_eq!(mistake(r#"{"rule": []}"#), "the script: unknown key `rule`; the keys here are rules");
    let cases = [
        (r#"{"txet": "a"}"#, "rules[0].replies[1]: unknown key `txet`"),
        (
            r#"{"tool_calls": [{"id": "a", "name": "b"}, {"nam": "b"}]}"#,
            "rules[0].replies[1].tool_calls[1]: unknown key `nam`",
        ),
        (r#"{"text": "a", "usage": {"input": 1}}"#, "rules[0].replies[1].usage: unknown key `input`"),
        (r#"{"error": {"code": 500}}"#, "rules[0].replies[1].error: unknown key `code`"),
    ];
    for (reply, expected) in cases {
        let said = mistake_in_reply(reply);
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn a_duplicate_key_is_refused() {
    assert_eq!(
        mistake_in_reply(r#"{"text": "a", "text": "b"}"#),
        "rules[0].replies[1]: the key `text` appears twice; keep one"
    );
}

#[test]
fn an_invalid_pattern_is_refused_with_its_path() {
    let said = mistake(r#"{"rules": [{"when": "a(", "replies": [{"text": "a"}]}]}"#);
    assert!(said.starts_with("rules[0].when: this is not a regular expression: "), "{said}");
    assert!(said.contains("unclosed group"), "{said}");
    assert_eq!(
        mistake(r#"{"rules": [{"replies": [{"text": "a"}]}]}"#),
        "rules[0].when: it is missing; \".*\" matches every user message"
    );
}

#[tokio::test]
async fn of_two_rules_with_the_same_pattern_the_first_serves() {
    let model = model(
        r#"{"rules": [{"when": "a", "replies": [{"text": "a"}]}, {"when": "a", "replies": [{"text": "b"}]}]}"#,
    );
    for call in [1, 2] {
        assert_eq!(asked(&model, "a", call).await, Ok(ModelAnswer::text("a")));
    }
}

#[test]
fn an_empty_reply_is_refused() {
    for nothing in [r#"{}"#, r#"{"delay_ms": 5}"#, r#"{"tool_calls": []}"#, r#"{"reasoning": "hm"}"#] {
        assert_eq!(
            mistake_in_reply(nothing),
            "rules[0].replies[1]: the reply has neither `text` nor `tool_calls` nor `error`; give it one of them",
            "{nothing}"
        );
    }
    assert!(Script::from_json(r#"{"rules": [{"when": "", "replies": [{"text": ""}]}]}"#).is_ok());
}

#[test]
fn an_error_beside_an_answer_is_refused() {
    for other in ["\"text\": \"a\"", "\"tool_calls\": []", "\"usage\": {}", "\"delta_chars\": 4"] {
        let said = mistake_in_reply(&format!(r#"{{"error": {{"status": 500, "message": "no"}}, {other}}}"#));
        let key = other.split('"').nth(1).unwrap();
        assert!(said.starts_with(&format!("rules[0].replies[1]: `{key}` is set beside `error`")), "{said}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_key() {
    let cases = [
        (r#"{"text": 5}"#, "text: invalid type: integer `5`, expected a string"),
        (r#"{"text": null}"#, "text: invalid type: null, expected a string"),
        (r#"{"text": "a", "delay_ms": -1}"#, "delay_ms: invalid value: integer `-1`, expected u64"),
        (
            r#"{"text": "a", "delta_chars": 0}"#,
            "delta_chars: a delta has at least 1 character; without `delta_chars` each part is one delta",
        ),
        (
            r#"{"error": {"status": 200, "message": "fine"}}"#,
            "error.status: 200 is not the status of an error; use one from 400 to 599",
        ),
        (
            r#"{"error": {"status": 500}}"#,
            "error.message: it is missing; write a text that says what went wrong",
        ),
        (r#"{"tool_calls": [{"id": "a"}]}"#, "tool_calls[0].name: it is missing; write the name of the tool"),
        (r#"{"tool_calls": {}}"#, "tool_calls: invalid type: map, expected a sequence"),
    ];
    for (reply, expected) in cases {
        assert_eq!(mistake_in_reply(reply), format!("rules[0].replies[1].{expected}"));
    }
    let both = r#"{"tool_calls": [{"name": "a", "arguments": {}, "arguments_text": "{}"}]}"#;
    let said = mistake_in_reply(both);
    assert!(said.starts_with("rules[0].replies[1].tool_calls[0]: `arguments_text` is set beside"), "{said}");
}
