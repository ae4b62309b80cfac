//! `RunAgentInput`: what is read of it, what is left out, and what refuses it.

use protocols::ag_ui::{AgUiDialect, AgUiInputMessage, AgUiRequest, AgUiResumeStatus};
use serde_json::{Value, json};

fn body() -> Value {
    json!({
        "threadId": "t", "runId": "r", "protocolVersion": "1.0", "state": {"a": 1},
        "messages": [
            {"id": "s1", "role": "system", "content": "Be brief."},
            {"id": "u1", "role": "user", "content": "Hi"},
            {"id": "a1", "role": "assistant", "content": "One.", "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "pick", "arguments": "{}"}},
            ]},
            {"id": "x1", "role": "tool", "toolCallId": "c1", "content": "cat.png", "error": "too large"},
            {"id": "g1", "role": "reasoning", "content": "Hm"},
            {"id": "z1", "role": "hologram", "shape": 7},
            {"id": "u2", "role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "scent"}]},
        ],
        "tools": [{"name": "pick", "description": "Pick", "parameters": {"type": "object"}, "metadata": {}}],
        "context": [{"description": "place", "value": "Paris"}],
        "forwardedProps": {"command": {"resume": "yes"}},
        "resume": [
            {"interruptId": "i1", "status": "resolved", "payload": {"approved": true}, "metadata": {"sig": "x"}},
            {"interruptId": "i2", "status": "cancelled"},
            {"interruptId": "i2", "status": "cancelled"},
        ],
        "somethingNew": true,
    })
}

#[test]
fn known_members_are_read_and_unknown_ones_are_left_out() {
    let request = AgUiRequest::parse(&body()).unwrap();
    assert_eq!((request.thread_id.as_str(), request.run_id.as_str()), ("t", "r"));
    assert_eq!(request.dialect, AgUiDialect::V1_0);
    let ids: Vec<_> = request.messages.iter().map(AgUiInputMessage::id).collect();
    assert_eq!(ids, ["s1", "u1", "a1", "x1", "g1", "u2"]);
    let result = request.tool_results().next().unwrap();
    assert_eq!((result.call_id.as_str(), result.error.as_deref()), ("c1", Some("too large")));
    assert_eq!(request.tools[0].parameters, Some(json!({"type": "object"})));
    assert_eq!(request.context[0].value, "Paris");
    let answers: Vec<_> = request.resume.iter().map(|entry| entry.interrupt_id.as_str()).collect();
    assert_eq!(answers, ["i1", "i2"], "an answer that is given twice counts once");
    assert_eq!(request.resume[1].status, AgUiResumeStatus::Cancelled);
}

#[test]
fn only_the_ids_and_the_messages_are_required() {
    let request = AgUiRequest::parse(&json!({"threadId": "t", "runId": "r", "messages": []})).unwrap();
    assert_eq!(request.dialect, AgUiDialect::Before);
    assert!(request.tools.is_empty() && request.context.is_empty() && request.resume.is_empty());
    for name in ["threadId", "runId", "messages"] {
        let mut body = body();
        body.as_object_mut().unwrap().remove(name);
        assert_eq!(AgUiRequest::parse(&body).unwrap_err().to_string(), format!("`{name}` is missing"));
    }
}

#[test]
fn version_chooses_the_dialect() {
    let of = |version| {
        let mut body = body();
        body["protocolVersion"] = json!(version);
        AgUiRequest::parse(&body).unwrap().dialect
    };
    for version in ["1.0", "1.1", "1.10", "2.0", "draft"] {
        assert_eq!(of(version), AgUiDialect::V1_0, "{version}");
    }
    assert_eq!(of("0.9"), AgUiDialect::Before);
    assert_eq!(AgUiDialect::from_version(None), AgUiDialect::Before);
}

#[test]
fn null_stands_for_an_absent_state_and_absent_props_and_for_nothing_else() {
    let mut with_nulls = body();
    with_nulls["state"] = Value::Null;
    with_nulls["forwardedProps"] = Value::Null;
    with_nulls["tools"][0]["parameters"] = Value::Null;
    let request = AgUiRequest::parse(&with_nulls).unwrap();
    assert_eq!((request.state, request.forwarded_props), (None, None));
    for name in ["resume", "tools", "context", "parentRunId", "protocolVersion", "messages"] {
        let mut body = body();
        body[name] = Value::Null;
        assert_eq!(AgUiRequest::parse(&body).unwrap_err().path, name);
    }
}

#[test]
fn malformed_member_refuses_the_request_and_names_its_path() {
    let cases: [(&str, Value, &str); 21] = [
        ("/threadId", json!(7), "`threadId` must be a string"),
        ("/runId", json!(""), "`runId` must have 1 to 256 characters"),
        ("/messages", json!({}), "`messages` must be a list"),
        ("/messages/1", json!("hi"), "`messages[1]` must be an object"),
        ("/messages/1/id", json!(1), "`messages[1].id` must be a string"),
        ("/messages/1/role", json!(null), "`messages[1].role` must be a string"),
        ("/messages/1/content", json!(1), "`messages[1].content` must be a string or a list of parts"),
        ("/messages/6/content/0/text", json!(1), "`messages[6].content[0].text` must be a string"),
        ("/messages/6/content/1", json!("x"), "`messages[6].content[1]` must be an object"),
        ("/messages/2/content", json!(null), "`messages[2].content` must be a string"),
        (
            "/messages/2/toolCalls/0/function",
            json!("f"),
            "`messages[2].toolCalls[0].function` must be an object",
        ),
        ("/messages/3/toolCallId", json!(1), "`messages[3].toolCallId` must be a string"),
        ("/messages/3/error", json!({}), "`messages[3].error` must be a string"),
        ("/tools/0/name", json!(1), "`tools[0].name` must be a string"),
        ("/tools/0/parameters", json!(true), "`tools[0].parameters` must be a JSON Schema object"),
        ("/context/0/value", json!(1), "`context[0].value` must be a string"),
        ("/resume", json!({}), "`resume` must be a list"),
        ("/resume/0/interruptId", json!(1), "`resume[0].interruptId` must be a string"),
        (
            "/resume/0/status",
            json!("approved"),
            "`resume[0].status` is `approved`; use `resolved` or `cancelled`",
        ),
        ("/resume/1/status", json!(null), "`resume[1].status` must be a string"),
        ("/protocolVersion", json!(1.0), "`protocolVersion` must be a string"),
    ];
    for (pointer, value, expected) in cases {
        let mut body = body();
        *body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        assert_eq!(AgUiRequest::parse(&body).unwrap_err().to_string(), expected);
    }
    for not_an_object in [json!([]), json!("x"), json!(null)] {
        assert_eq!(AgUiRequest::parse(&not_an_object).unwrap_err().to_string(), "the body must be an object");
    }
}

#[test]
fn two_different_answers_to_one_interrupt_refuse_the_request() {
    let mut body = body();
    body["resume"][1] = json!({"interruptId": "i1", "status": "cancelled"});
    let refused = AgUiRequest::parse(&body).unwrap_err();
    assert_eq!(refused.path, "resume[1].interruptId");
}

#[test]
fn two_tools_of_one_name_refuse_the_request() {
    let mut body = body();
    body["tools"] = json!([{"name": "pick", "description": ""}, {"name": "pick", "description": ""}]);
    assert_eq!(AgUiRequest::parse(&body).unwrap_err().path, "tools[1].name");
}

#[test]
fn counts_are_bounded() {
    let many = |count: usize, item: Value| Value::Array(vec![item; count]);
    let cases = [
        ("messages", many(10_001, json!({"id": "u", "role": "user", "content": "x"}))),
        ("tools", many(257, json!({"name": "a", "description": ""}))),
        ("context", many(257, json!({"description": "", "value": ""}))),
        ("resume", many(1_001, json!({"interruptId": "i", "status": "cancelled"}))),
    ];
    for (name, value) in cases {
        let mut body = body();
        body[name] = value;
        let refused = AgUiRequest::parse(&body).unwrap_err();
        assert_eq!(refused.path, name);
        assert!(refused.problem.contains("at most"), "{refused}");
    }
    let mut body = body();
    body["messages"][0]["id"] = json!("x".repeat(257));
    assert_eq!(AgUiRequest::parse(&body).unwrap_err().path, "messages[0].id");
}

#[test]
fn result_of_a_client_tool_is_a_value_and_a_text() {
    let result_of = |content: Value| {
        let mut body = body();
        body["messages"][3]["content"] = content;
        AgUiRequest::parse(&body).unwrap().tool_results().next().unwrap().clone()
    };
    assert_eq!(result_of(json!("{\"a\":[1]}")).value(), json!({"a": [1]}));
    for text in ["cat.png", "7", "true", "\"x\"", "{broken"] {
        assert_eq!(result_of(json!(text)).value(), json!(text));
    }
    let parts = json!([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]);
    let result = result_of(parts.clone());
    assert_eq!((result.value(), result.text()), (parts, "ab".to_owned()));
}
