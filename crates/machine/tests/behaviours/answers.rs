//! The truth table of answers: which decision may answer which suspension, and what it then means.

use std::sync::Arc;

use machine::Timestamp;
use machine::decision::{Decision, DecisionAction, DecisionMeaning, Payload, Resume, edit_fault, interpret};
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::tool::Arguments;
use serde_json::{Value, json};

use crate::story::{cancel, invalid, valid};

use ResumeMode::{PassDecisionToTool, ReplayToolCall, UseDecisionAsToolResult};
use SuspensionKind::{Approval, ChildRun, ClientTool, External, InDoubt, Question};

fn payloads() -> [(&'static str, Payload); 6] {
    let result = |value: Value| Payload::Result(Arc::new(value));
    [
        ("absent", Payload::Absent),
        ("true", result(json!(true))),
        ("false", result(json!(false))),
        ("null", result(json!(null))),
        ("object", result(json!({"to": "bob"}))),
        ("error", Payload::Error("it broke".into())),
    ]
}

/// The payload comes canonicalised as arguments wherever the shell could make an object of it.
fn as_arguments(payload: &Payload) -> Option<Arguments> {
    match payload {
        Payload::Result(value) if value.is_object() => Some(valid((**value).clone())),
        Payload::Result(_) | Payload::Absent | Payload::Error(_) => None,
    }
}

fn in_words(kind: SuspensionKind, mode: ResumeMode, action: &DecisionAction) -> &'static str {
    match interpret(kind, mode, action) {
        Ok(DecisionMeaning::Approve { edited: None }) => "approve",
        Ok(DecisionMeaning::Approve { edited: Some(_) }) => "approve edited",
        Ok(DecisionMeaning::Deny) => "deny",
        Ok(DecisionMeaning::Replay { answer: None, arguments: None, mode: ReplayToolCall }) => "replay",
        Ok(DecisionMeaning::Replay { answer: Some(_), arguments: None, mode: ReplayToolCall }) => {
            "replay, answered"
        }
        Ok(DecisionMeaning::Replay { answer: Some(_), arguments: None, mode: PassDecisionToTool }) => {
            "replay as asked"
        }
        Ok(DecisionMeaning::Replay { answer: Some(_), arguments: Some(_), mode: PassDecisionToTool }) => {
            "replay with it"
        }
        Ok(DecisionMeaning::Replay { .. }) => "some other replay",
        Ok(DecisionMeaning::Result(_)) => "result",
        Ok(DecisionMeaning::Failure(_)) => "failure",
        Ok(DecisionMeaning::GiveUp) => "give up",
        Ok(DecisionMeaning::Cancel) => "cancel",
        Err(_) => "invalid",
    }
}

/// What a resume with each payload means, in the order of `payloads`, then a cancel.
fn expected(kind: SuspensionKind, mode: ResumeMode) -> [&'static str; 7] {
    match (kind, mode) {
        (Approval, _) => ["approve", "approve", "invalid", "invalid", "invalid", "invalid", "deny"],
        (ClientTool | External | Question, ReplayToolCall) => {
            ["replay", "replay, answered", "invalid", "invalid", "replay, answered", "failure", "cancel"]
        }
        (ClientTool | External | Question, UseDecisionAsToolResult) => {
            ["invalid", "result", "result", "result", "result", "failure", "cancel"]
        }
        (ClientTool | External | Question, PassDecisionToTool) => {
            ["invalid", "replay as asked", "invalid", "invalid", "replay with it", "failure", "cancel"]
        }
        (InDoubt, _) => ["replay", "result", "result", "result", "result", "invalid", "give up"],
        (ChildRun, _) => ["invalid"; 7],
    }
}

#[test]
fn a83_a86_every_kind_and_mode_with_every_payload() {
    for kind in SuspensionKind::ALL {
        for mode in ResumeMode::ALL {
            let [row @ .., cancelled] = expected(kind, mode);
            for ((name, payload), wanted) in payloads().into_iter().zip(row) {
                // Only where the answer can become the arguments does the shell send them along.
                let takes_them = mode == PassDecisionToTool && kind != Approval && kind != InDoubt;
                let payload_arguments = if takes_them { as_arguments(&payload) } else { None };
                let action =
                    DecisionAction::Resume(Resume { payload, payload_arguments, ..Resume::default() });
                assert_eq!(in_words(kind, mode, &action), wanted, "{kind} {mode:?} {name}");
            }
            assert_eq!(in_words(kind, mode, &cancel()), cancelled, "{kind} {mode:?} cancel");
        }
    }
}

#[test]
fn a86_the_decision_may_name_another_mode_but_an_approval_only_replays() {
    for asked_in in ResumeMode::ALL {
        for over in ResumeMode::ALL {
            let payload = Payload::Result(Arc::new(json!({"to": "bob"})));
            let arguments = (over == PassDecisionToTool).then(|| valid(json!({"to": "bob"})));
            let with = |payload, payload_arguments| {
                let mode = Some(over);
                DecisionAction::Resume(Resume { payload, payload_arguments, mode, ..Resume::default() })
            };
            let wanted = match over {
                ReplayToolCall => "replay, answered",
                UseDecisionAsToolResult => "result",
                PassDecisionToTool => "replay with it",
            };
            for kind in [ClientTool, External, Question] {
                assert_eq!(in_words(kind, asked_in, &with(payload.clone(), arguments.clone())), wanted);
            }
            let approves = if over == ReplayToolCall { "approve" } else { "invalid" };
            assert_eq!(in_words(Approval, asked_in, &with(Payload::Absent, None)), approves);
            assert_eq!(in_words(InDoubt, asked_in, &with(Payload::Absent, None)), "invalid");
            assert_eq!(in_words(ChildRun, asked_in, &with(payload, arguments)), "invalid");
        }
    }
}

#[test]
fn a86_edited_arguments_belong_to_an_approval_and_must_be_good() {
    let edited =
        |arguments| DecisionAction::Resume(Resume { arguments: Some(arguments), ..Resume::default() });
    let good = edited(valid(json!({"to": "eve"})));
    let bad = edited(invalid("`to` is missing"));
    assert_eq!(in_words(Approval, ReplayToolCall, &good), "approve edited");
    // An edit is judged after everything else that the approval is for.
    assert_eq!(in_words(Approval, ReplayToolCall, &bad), "approve edited");
    assert_eq!(
        edit_fault(&invalid("`to` is missing")),
        Some("the edited arguments are bad: `to` is missing".into())
    );
    assert_eq!(edit_fault(&valid(json!({"to": "eve"}))), None);
}

#[test]
fn a86_only_an_approval_takes_edited_arguments_whatever_the_mode_and_the_payload() {
    // Elsewhere they would be dropped in silence, and something else would run than the person wrote.
    for kind in [ClientTool, External, Question, InDoubt, ChildRun] {
        for mode in ResumeMode::ALL {
            for (name, payload) in payloads() {
                let payload_arguments = as_arguments(&payload);
                let arguments = Some(valid(json!({"to": "eve"})));
                let resume = Resume { payload, payload_arguments, arguments, ..Resume::default() };
                let action = DecisionAction::Resume(resume);
                assert_eq!(in_words(kind, mode, &action), "invalid", "{kind} {mode:?} {name}");
            }
        }
    }
}

#[test]
fn b32_other_arguments_under_the_same_id_are_another_decision() {
    let decision = |arguments: Option<Value>, payload_arguments| Decision {
        id: Some("d".into()),
        call: "A".into(),
        suspension: "sus_A".into(),
        by: "ana".into(),
        accepted_at: Timestamp(1_000),
        definition_now: None,
        action: DecisionAction::Resume(Resume {
            payload: Payload::Result(Arc::new(json!({"to": "bob"}))),
            arguments: arguments.map(valid),
            payload_arguments,
            ..Resume::default()
        }),
    };
    let plain = decision(None, None);
    // The arguments that the shell derives from the payload are not part of what the person said.
    assert!(plain.same_content(&decision(None, Some(valid(json!({"to": "bob"}))))));
    let edited = decision(Some(json!({"to": "eve"})), None);
    assert!(edited.same_content(&decision(Some(json!({"to": "eve"})), None)));
    assert!(!plain.same_content(&edited) && !edited.same_content(&plain));
    assert!(!edited.same_content(&decision(Some(json!({"to": "mallory"})), None)));
    // Another person may repeat it: it is the same decision.
    assert!(edited.same_content(&Decision { by: "bea".into(), ..edited.clone() }));
}

#[test]
fn b16_a_question_with_a_schema_accepts_false_as_an_answer() {
    for kind in SuspensionKind::ALL {
        for value in [json!(false), json!(null)] {
            let payload = Payload::Result(Arc::new(value));
            let resume = |has_schema| {
                DecisionAction::Resume(Resume { payload: payload.clone(), has_schema, ..Resume::default() })
            };
            // It replays, and the tool gets the answer: only a question asks for one.
            let wanted = match kind {
                Question => "replay, answered",
                InDoubt => "result",
                Approval | ClientTool | External | ChildRun => "invalid",
            };
            assert_eq!(in_words(kind, ReplayToolCall, &resume(true)), wanted, "{kind}");
            // It would be the arguments.
            let passed = if kind == InDoubt { "result" } else { "invalid" };
            assert_eq!(in_words(kind, PassDecisionToTool, &resume(true)), passed, "{kind}");
            // The decision does not say that it is an answer.
            assert_eq!(in_words(kind, ReplayToolCall, &resume(false)), passed, "{kind}");
        }
    }
}

#[test]
fn a86_an_answer_that_cannot_be_arguments_is_invalid() {
    let with = |value: Value, payload_arguments| {
        let payload = Payload::Result(Arc::new(value));
        DecisionAction::Resume(Resume { payload, payload_arguments, ..Resume::default() })
    };
    for kind in [ClientTool, External, Question] {
        let no_object = with(json!("bob"), None);
        assert_eq!(
            interpret(kind, PassDecisionToTool, &no_object).unwrap_err(),
            "the result cannot be the arguments"
        );
        let against_schema = with(json!({"to": 7}), Some(invalid("`to` is no text")));
        assert_eq!(
            interpret(kind, PassDecisionToTool, &against_schema).unwrap_err(),
            "the result cannot be the arguments: `to` is no text"
        );
        // A bare true means the original arguments, whatever came along.
        let yes = with(json!(true), Some(valid(json!({"to": "eve"}))));
        assert_eq!(in_words(kind, PassDecisionToTool, &yes), "replay as asked");
    }
}

#[test]
fn b16_an_answer_against_the_schema_is_invalid_whatever_else_it_says() {
    for kind in SuspensionKind::ALL {
        for mode in ResumeMode::ALL {
            for (name, payload) in payloads() {
                let fault = Some("7 is no text".into());
                let resume = Resume { payload, payload_fault: fault, ..Resume::default() };
                let refused = interpret(kind, mode, &DecisionAction::Resume(resume)).unwrap_err();
                assert_eq!(
                    refused, "the result does not fit the schema: 7 is no text",
                    "{kind} {mode:?} {name}"
                );
            }
        }
    }
}
