//! What clients post, and what is refused.

use protocols::ai_sdk::{AiDecision, ChatAction, MESSAGES_MAX, parse_request};
use serde_json::{Value, json};

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn assistant(parts: &Value) -> Value {
    json!({"id": "msg_run_1", "role": "assistant", "parts": parts})
}

fn body(messages: &[Value]) -> Value {
    json!({"id": "chat-1", "messages": messages, "trigger": "submit-message"})
}

fn action(body: &Value) -> ChatAction {
    parse_request(body).unwrap().action
}

fn refused(body: &Value) -> String {
    parse_request(body).unwrap_err().to_string()
}

#[test]
fn a_new_message_ends_the_history() {
    let mut request = body(&[user("u1", "hi"), assistant(&json!([])), user("u2", "and now?")]);
    request["extra"] = json!({"added": "by the transport"});
    let parsed = parse_request(&request).unwrap();
    assert_eq!(parsed.chat_id, "chat-1");
    let expected = ChatAction::NewMessage { message_id: "u2".into(), content: json!("and now?") };
    assert_eq!(parsed.action, expected);
}

#[test]
fn files_become_parts_of_the_content() {
    let parts = json!([
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
        {"type": "text", "text": "What is this?"},
        {"type": "data-cursor", "data": {"line": 1}},
        {"type": "hologram", "url": 7},
    ]);
    let request = body(&[json!({"id": "u1", "role": "user", "parts": parts})]);
    let content = json!([
        {"type": "file", "media_type": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
        {"type": "text", "text": "What is this?"},
    ]);
    assert_eq!(action(&request), ChatAction::NewMessage { message_id: "u1".into(), content });
}

#[test]
fn an_edited_message_names_itself_and_the_one_before() {
    let mut request = body(&[user("u1", "hi"), assistant(&json!([])), user("u2", "better")]);
    request["messageId"] = json!("u2");
    let after = Some("msg_run_1".to_owned());
    let expected = ChatAction::Edit { message_id: "u2".into(), content: json!("better"), after };
    assert_eq!(action(&request), expected);

    let mut request = body(&[user("u1", "better")]);
    request["messageId"] = json!("u1");
    let expected = ChatAction::Edit { message_id: "u1".into(), content: json!("better"), after: None };
    assert_eq!(action(&request), expected);
}

#[test]
fn regenerating_names_the_message_to_answer_again() {
    let mut request = body(&[user("u1", "hi")]);
    request["trigger"] = json!("regenerate-message");
    request["messageId"] = json!("msg_run_1");
    let expected = ChatAction::Regenerate { message_id: Some("msg_run_1".into()), after: "u1".into() };
    assert_eq!(action(&request), expected);
    request.as_object_mut().unwrap().remove("messageId");
    assert_eq!(action(&request), ChatAction::Regenerate { message_id: None, after: "u1".into() });
    request["messages"] = json!([]);
    assert_eq!(refused(&request), "`messages`: expected the message to answer again");
}

#[test]
fn answers_of_all_steps_are_read() {
    let parts = json!([
        {"type": "step-start"},
        {"type": "tool-pick_file", "toolCallId": "a", "state": "output-available", "input": {}, "output": 1},
        {"type": "dynamic-tool", "toolName": "add", "toolCallId": "b", "state": "output-available", "output": 2},
        {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "input": {},
         "approval": {"id": "apr_c", "approved": true, "reason": "fine", "isAutomatic": false}},
        {"type": "step-start"},
        {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "d", "state": "approval-requested",
         "approval": {"id": "apr_d"}},
        {"type": "tool-locate", "toolCallId": "e", "state": "output-available", "input": {}, "output": 1,
         "preliminary": true},
        {"type": "tool-locate", "toolCallId": "f", "state": "output-available", "input": {}},
    ]);
    match action(&body(&[user("u1", "hi"), assistant(&parts)])) {
        ChatAction::Continue { message_id, decisions, outputs, seen } => {
            assert_eq!(message_id, "msg_run_1");
            let expected =
                AiDecision { approval_id: "apr_c".into(), approved: true, reason: Some("fine".into()) };
            assert_eq!(decisions, [expected]);
            let outputs: Vec<_> = outputs.into_iter().map(|output| (output.call_id, output.result)).collect();
            assert_eq!(outputs, [("a".to_owned(), Ok(json!(1))), ("f".to_owned(), Ok(Value::Null))]);
            assert_eq!(seen.steps(), 2);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_earlier_message_can_be_answered_while_another_one_is_queued() {
    let parts = json!([
        {"type": "step-start"},
        {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "input": {},
         "approval": {"id": "apr_c", "approved": false}},
    ]);
    let mut request = body(&[user("u1", "hi"), assistant(&parts), user("u2", "and then?")]);
    request["messageId"] = json!("msg_run_1");
    match action(&request) {
        ChatAction::Continue { message_id, decisions, .. } => {
            assert_eq!(message_id, "msg_run_1");
            assert_eq!(decisions.len(), 1);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_answers_the_client_only_follows_the_run() {
    match action(&body(&[user("u1", "hi"), assistant(&json!([{"type": "step-start"}]))])) {
        ChatAction::Continue { decisions, outputs, .. } => {
            assert!(decisions.is_empty() && outputs.is_empty());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(action(&body(&[])), ChatAction::Nothing);
    let system = json!({"id": "s1", "role": "system", "parts": []});
    assert_eq!(action(&body(&[system])), ChatAction::Nothing);
}

#[test]
fn malformed_fields_are_named() {
    let held = |approval: Value| {
        let part = json!({"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded",
            "approval": approval});
        body(&[user("u1", "hi"), assistant(&json!([{"type": "step-start"}, part]))])
    };
    let cases = [
        (json!([]), "the body: expected an object"),
        (json!({"messages": []}), "`id`: expected a text"),
        (json!({"id": "", "messages": []}), "`id`: it is empty"),
        (json!({"id": "c"}), "`messages`: expected a list"),
        (
            json!({"id": "c", "messages": [], "messageId": null}),
            "`messageId`: expected a text; leave it out if there is none",
        ),
        (
            json!({"id": "c", "messages": [], "trigger": "delete"}),
            "`trigger`: expected submit-message or regenerate-message",
        ),
        (body(&[json!("hi")]), "`messages[0].role`: expected a text"),
        (body(&[json!({"role": "tool"})]), "`messages[0].role`: expected user, assistant or system"),
        (body(&[json!({"id": 7, "role": "user", "parts": []})]), "`messages[0].id`: expected a text"),
        (body(&[json!({"id": "u", "role": "user"})]), "`messages[0].parts`: expected a list"),
        (body(&[user("u1", "")]), "`messages[0].parts`: the message is empty; send text or a file"),
        (
            body(&[
                json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "a"}, {"type": "file", "url": "x"}]}),
            ]),
            "`messages[0].parts[1].mediaType`: expected a text",
        ),
        (held(json!({"id": "a"})), "`messages[1].parts[1].approval.approved`: expected true or false"),
        (
            held(json!({"id": "a", "approved": null})),
            "`messages[1].parts[1].approval.approved`: expected true or false",
        ),
        (
            held(json!({"id": "a", "approved": "yes"})),
            "`messages[1].parts[1].approval.approved`: expected true or false",
        ),
        (held(json!({"approved": true})), "`messages[1].parts[1].approval.id`: expected a text"),
        (held(json!(null)), "`messages[1].parts[1].approval.id`: expected a text"),
        (
            held(json!({"id": "a", "approved": true, "reason": null})),
            "`messages[1].parts[1].approval.reason`: expected a text; leave it out if there is none",
        ),
        (
            body(&[assistant(&json!([{"type": "tool-x", "toolCallId": "a", "state": "exploded"}]))]),
            "`messages[0].parts[0].state`: it is not a state of a tool part",
        ),
        (
            body(&[assistant(&json!([{"type": "tool-x", "toolCallId": "", "state": "output-available"}]))]),
            "`messages[0].parts[0].toolCallId`: it is empty",
        ),
        (
            body(&[assistant(&json!([{"type": "tool-x", "toolCallId": "a", "state": "output-error"}]))]),
            "`messages[0].parts[0].errorText`: expected a text",
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(refused(&request), expected, "{request}");
    }
}

#[test]
fn two_parts_that_answer_one_approval_differently_are_refused() {
    let part = |call: &str, approved: bool| {
        json!({"type": "dynamic-tool", "toolName": "pay", "toolCallId": call, "state": "approval-responded", "input": {},
            "approval": {"id": "apr_1", "approved": approved}})
    };
    for (one, other) in [(true, false), (false, true)] {
        let parts = json!([part("c", one), part("d", other)]);
        let why = refused(&body(&[user("u1", "hi"), assistant(&parts)]));
        assert!(why.contains("apr_1"), "{why}");
    }
    let parts = json!([part("c", true), part("d", true)]);
    assert!(matches!(action(&body(&[user("u1", "hi"), assistant(&parts)])), ChatAction::Continue { .. }));
}

#[test]
fn two_parts_with_one_call_id_are_refused() {
    let part =
        |kind: &str| json!({"type": kind, "toolName": "pay", "toolCallId": "c", "state": "input-available"});
    for kind in ["dynamic-tool", "tool-pay"] {
        let why = refused(&body(&[assistant(&json!([part("tool-pay"), part(kind)]))]));
        assert_eq!(
            why,
            "`messages[0].parts[1].toolCallId`: another part of the message has the id `c` as well"
        );
    }
}

#[test]
fn sizes_are_bounded() {
    let request = body(&vec![json!({}); MESSAGES_MAX + 1]);
    assert_eq!(refused(&request), "`messages`: 10001 entries, at most 10000");
    let parts = Value::Array(vec![json!({"type": "step-start"}); 10_001]);
    assert_eq!(refused(&body(&[assistant(&parts)])), "`messages[0].parts`: 10001 entries, at most 10000");
    let output =
        |call: usize| json!({"type": "tool-x", "toolCallId": call.to_string(), "state": "output-available"});
    let parts = (0..1_001).map(output).collect();
    assert_eq!(
        refused(&body(&[assistant(&parts)])),
        "`messages[0].parts`: more than 1000 answers; send fewer at once"
    );
}
