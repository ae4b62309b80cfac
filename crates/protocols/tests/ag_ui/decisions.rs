//! What answers decide: nothing but a literal `approved: true` approves.

use protocols::ag_ui::{
    AgUiAnswerable, AgUiDecision, AgUiInvalidAnswer, AgUiResumeEntry, AgUiResumeStatus, AgUiToolResult,
    CANCELLED_IN_CLIENT,
};
use serde_json::{Value, json};

fn decide(held: AgUiAnswerable, status: AgUiResumeStatus) -> Result<AgUiDecision, AgUiInvalidAnswer> {
    AgUiDecision::from_entry(&AgUiResumeEntry { interrupt_id: "i1".into(), status }, held)
}

fn resolved(held: AgUiAnswerable, payload: Value) -> Result<AgUiDecision, AgUiInvalidAnswer> {
    decide(held, AgUiResumeStatus::Resolved(Some(payload)))
}

#[test]
fn literal_true_approves_and_edits_replace_the_arguments() {
    let plain = resolved(AgUiAnswerable::Approval, json!({"approved": true}));
    assert_eq!(plain, Ok(AgUiDecision::Approve { edited: None }));
    let edited = resolved(AgUiAnswerable::Approval, json!({"approved": true, "editedArgs": {"to": "b"}}));
    assert_eq!(edited, Ok(AgUiDecision::Approve { edited: Some(json!({"to": "b"})) }));
}

#[test]
fn false_denies_with_its_reason() {
    let denied =
        resolved(AgUiAnswerable::Approval, json!({"approved": false, "reason": "no", "editedArgs": 7}));
    assert_eq!(denied, Ok(AgUiDecision::Deny { reason: Some("no".into()) }));
    let bare = resolved(AgUiAnswerable::Approval, json!({"approved": false}));
    assert_eq!(bare, Ok(AgUiDecision::Deny { reason: None }));
}

#[test]
fn anything_else_decides_nothing() {
    let payloads = [
        json!({"approved": true, "edited_args": {"to": "b"}}),
        json!({"approved": true, "note": 1}),
        json!(true),
        json!("true"),
        json!("yes"),
        json!(null),
        json!(1),
        json!([]),
        json!({}),
        json!([{"approved": true}]),
        json!({"approved": "true"}),
        json!({"approved": 1}),
        json!({"approved": null}),
        json!({"Approved": true}),
        json!({"approved": true, "editedArgs": null}),
        json!({"approved": true, "editedArgs": [1]}),
        json!({"approved": true, "editedArgs": "{}"}),
        json!({"approved": false, "reason": 7}),
        json!({"approved": true, "reason": [1]}),
    ];
    for payload in payloads {
        let refused = resolved(AgUiAnswerable::Approval, payload.clone());
        assert!(refused.is_err(), "{payload}: {refused:?}");
    }
    let missing = decide(AgUiAnswerable::Approval, AgUiResumeStatus::Resolved(None)).unwrap_err();
    let expected =
        "the answer to `i1` decides nothing: the payload must be an object with `approved`: true or false";
    assert_eq!(missing.to_string(), expected);
}

#[test]
fn payload_is_the_answer_to_a_question() {
    for answer in [json!("A"), json!(false), json!({"a": 1}), json!(0)] {
        let decided = resolved(AgUiAnswerable::Question, answer.clone());
        assert_eq!(decided, Ok(AgUiDecision::Answer { result: answer }));
    }
    assert!(resolved(AgUiAnswerable::Question, json!(null)).is_err());
    assert!(decide(AgUiAnswerable::Question, AgUiResumeStatus::Resolved(None)).is_err());
}

#[test]
fn doubt_is_answered_only_on_purpose() {
    let decided = |payload| resolved(AgUiAnswerable::InDoubt, payload);
    assert_eq!(decided(json!({"choice": "retry"})), Ok(AgUiDecision::Retry));
    assert_eq!(decided(json!({"choice": "give_up"})), Ok(AgUiDecision::GiveUp));
    assert_eq!(decided(json!({"result": null})), Ok(AgUiDecision::Answer { result: Value::Null }));
    for payload in [
        json!({"approved": true}),
        json!({"choice": "again"}),
        json!({"choice": true}),
        json!({"choice": "retry", "result": 1}),
        json!({"choice": "retry", "approved": false}),
        json!("retry"),
        json!(null),
    ] {
        assert!(decided(payload.clone()).is_err(), "{payload}");
    }
}

#[test]
fn leaving_without_an_answer_runs_nothing() {
    let left = |held| decide(held, AgUiResumeStatus::Cancelled).unwrap();
    let reason = Some(CANCELLED_IN_CLIENT.to_owned());
    assert_eq!(left(AgUiAnswerable::Approval), AgUiDecision::Deny { reason });
    assert_eq!(left(AgUiAnswerable::Question), AgUiDecision::Cancel { reason: CANCELLED_IN_CLIENT });
    assert_eq!(left(AgUiAnswerable::InDoubt), AgUiDecision::GiveUp);
}

#[test]
fn result_of_a_client_tool_is_what_its_json_says_or_its_text() {
    let value = |content: &str| {
        let result = AgUiToolResult {
            message_id: "x".into(),
            call_id: "c".into(),
            content: json!(content),
            error: None,
        };
        result.value()
    };
    assert_eq!(value(r#"{"picked":1}"#), json!({"picked": 1}));
    assert_eq!(value("[1]"), json!([1]));
    assert_eq!(value("7"), json!("7"), "a text stays one");
    assert_eq!(value("{broken"), json!("{broken"));
}
