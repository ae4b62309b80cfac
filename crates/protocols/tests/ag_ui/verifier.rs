//! Planted faults: each rule finds the stream that breaks it, at the event that breaks it.

use protocols::ag_ui::{AgUiDialect, AgUiRule, AgUiVerifier};
use serde_json::{Value, json};

fn started() -> Value {
    json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"})
}

fn finished() -> Value {
    json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"})
}

fn finished_as(outcome: Value) -> Value {
    json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": outcome})
}

fn error() -> Value {
    json!({"type": "RUN_ERROR", "message": "broken"})
}

fn text(kind: &str, id: &str) -> Value {
    match kind {
        "CONTENT" => json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": "x"}),
        _ => json!({"type": format!("TEXT_MESSAGE_{kind}"), "messageId": id}),
    }
}

fn reasoning(kind: &str) -> Value {
    match kind {
        "MESSAGE_START" => json!({"type": "REASONING_MESSAGE_START", "messageId": "g", "role": "reasoning"}),
        "MESSAGE_CONTENT" => json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "g", "delta": "x"}),
        _ => json!({"type": format!("REASONING_{kind}"), "messageId": "g"}),
    }
}

fn call(kind: &str) -> Value {
    match kind {
        "START" => json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"}),
        "ARGS" => json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"}),
        "RESULT" => {
            json!({"type": "TOOL_CALL_RESULT", "messageId": "m_c", "toolCallId": "c", "content": "1"})
        }
        _ => json!({"type": format!("TOOL_CALL_{kind}"), "toolCallId": "c"}),
    }
}

fn step(kind: &str, name: &str) -> Value {
    json!({"type": format!("STEP_{kind}"), "stepName": name})
}

fn subagent(kind: &str, id: &str) -> Value {
    match kind {
        "STARTED" => json!({"type": "SUBAGENT_STARTED", "subagentRunId": id, "name": "n"}),
        "ERROR" => json!({"type": "SUBAGENT_ERROR", "subagentRunId": id, "message": "m"}),
        _ => json!({"type": format!("SUBAGENT_{kind}"), "subagentRunId": id}),
    }
}

fn snapshot(messages: Value) -> Value {
    json!({"type": "MESSAGES_SNAPSHOT", "messages": messages})
}

fn with(mut event: Value, name: &str, value: Value) -> Value {
    event[name] = value;
    event
}

/// The rule that the last of these events breaks. All before it are legal.
#[track_caller]
fn broken_by_last(dialect: AgUiDialect, events: &[Value]) -> AgUiRule {
    let mut verifier = AgUiVerifier::new(dialect);
    let (last, before) = events.split_last().unwrap();
    for event in before {
        verifier.check(event).unwrap_or_else(|fault| panic!("too early: {fault} in {event}"));
    }
    let fault = verifier.check(last).expect_err("the planted fault was not found");
    assert_eq!(fault.event, last["type"].as_str().unwrap_or_default());
    assert!(fault.to_string().contains(fault.rule.as_str()));
    fault.rule
}

#[track_caller]
fn assert_broken(rule: AgUiRule, events: &[Value]) {
    assert_eq!(broken_by_last(AgUiDialect::V1_0, events), rule);
}

#[track_caller]
fn assert_legal(events: &[Value]) {
    let mut verifier = AgUiVerifier::new(AgUiDialect::V1_0);
    for event in events {
        verifier.check(event).unwrap_or_else(|fault| panic!("{fault} in {event}"));
    }
    verifier.finish().unwrap();
}

#[test]
fn streams_begin_with_a_run_or_an_error() {
    assert_broken(AgUiRule::FirstEvent, &[text("START", "m")]);
    assert_broken(AgUiRule::FirstEvent, &[finished()]);
    assert_legal(&[error()]);
}

#[test]
fn runs_follow_each_other_and_are_not_nested() {
    assert_broken(AgUiRule::NestedRun, &[started(), started()]);
    assert_legal(&[started(), finished(), started(), finished()]);
    assert_legal(&[started(), error(), started(), finished()]);
}

#[test]
fn nothing_follows_a_terminal_event_but_another_run() {
    assert_broken(AgUiRule::AfterFinish, &[started(), finished(), text("START", "m")]);
    assert_broken(AgUiRule::AfterFinish, &[started(), finished(), finished()]);
    assert_broken(AgUiRule::AfterError, &[started(), error(), step("STARTED", "s")]);
    assert_broken(AgUiRule::AfterError, &[started(), error(), error()]);
    assert_legal(&[started(), finished(), error()]);
}

#[test]
fn end_names_the_run_that_began() {
    assert_broken(AgUiRule::WrongRun, &[started(), with(finished(), "runId", json!("other"))]);
    assert_broken(AgUiRule::WrongRun, &[started(), with(finished(), "threadId", json!("other"))]);
}

#[test]
fn messages_and_calls_are_continued_only_while_open() {
    for kind in ["CONTENT", "END"] {
        assert_broken(AgUiRule::NotOpen, &[started(), text(kind, "m")]);
        let other = [started(), text("START", "m"), text(kind, "n")];
        assert_broken(AgUiRule::NotOpen, &other);
        assert_broken(AgUiRule::NotOpen, &[started(), text("START", "m"), text("END", "m"), text(kind, "m")]);
    }
    for kind in ["ARGS", "END"] {
        assert_broken(AgUiRule::NotOpen, &[started(), call(kind)]);
    }
    for kind in ["MESSAGE_CONTENT", "MESSAGE_END", "END"] {
        assert_broken(AgUiRule::NotOpen, &[started(), reasoning(kind)]);
    }
    // A span is no message.
    assert_broken(AgUiRule::NotOpen, &[started(), reasoning("START"), reasoning("MESSAGE_CONTENT")]);
}

#[test]
fn nothing_is_opened_twice() {
    assert_broken(AgUiRule::AlreadyOpen, &[started(), text("START", "m"), text("START", "m")]);
    assert_broken(AgUiRule::AlreadyOpen, &[started(), call("START"), call("START")]);
    assert_broken(AgUiRule::AlreadyOpen, &[started(), reasoning("START"), reasoning("START")]);
    assert_broken(
        AgUiRule::AlreadyOpen,
        &[started(), reasoning("MESSAGE_START"), reasoning("MESSAGE_START")],
    );
    assert_broken(AgUiRule::AlreadyOpen, &[started(), step("STARTED", "s"), step("STARTED", "s")]);
    assert_broken(AgUiRule::AlreadyOpen, &[started(), subagent("STARTED", "a"), subagent("STARTED", "a")]);
}

#[test]
fn run_finishes_with_nothing_open() {
    let openers = [
        text("START", "m"),
        call("START"),
        step("STARTED", "s"),
        reasoning("START"),
        reasoning("MESSAGE_START"),
        subagent("STARTED", "a"),
    ];
    for opener in openers {
        assert_broken(AgUiRule::OpenAtFinish, &[started(), opener.clone(), finished()]);
        assert_legal(&[started(), opener, error()]);
    }
}

#[test]
fn steps_are_closed_by_whoever_opened_them() {
    assert_broken(AgUiRule::NotOpen, &[started(), step("FINISHED", "s")]);
    let of_subagent = with(step("FINISHED", "s"), "subagentRunId", json!("a"));
    assert_broken(AgUiRule::NotOpen, &[started(), step("STARTED", "s"), of_subagent]);
}

#[test]
fn subagents_are_bracketed_and_their_ids_used_once_in_a_run() {
    assert_broken(AgUiRule::NotOpen, &[started(), subagent("FINISHED", "a")]);
    assert_broken(AgUiRule::NotOpen, &[started(), subagent("ERROR", "a")]);
    let again = [started(), subagent("STARTED", "a"), subagent("FINISHED", "a"), subagent("STARTED", "a")];
    assert_broken(AgUiRule::SubagentReused, &again);
    let orphan = with(subagent("STARTED", "a"), "parentSubagentRunId", json!("b"));
    assert_broken(AgUiRule::SubagentParent, &[started(), orphan]);
    let mut later = again.to_vec();
    later.splice(3..3, [finished(), started()]);
    later.extend([subagent("ERROR", "a"), finished()]);
    assert_legal(&later);
}

#[test]
fn continuation_belongs_to_the_subagent_that_opened_it() {
    let opened = with(text("START", "m"), "subagentRunId", json!("a"));
    let of_other = with(text("CONTENT", "m"), "subagentRunId", json!("b"));
    assert_broken(AgUiRule::Attribution, &[started(), opened.clone(), of_other.clone()]);
    assert_broken(AgUiRule::Attribution, &[started(), text("START", "m"), of_other]);
    assert_legal(&[started(), opened, text("CONTENT", "m"), text("END", "m"), finished()]);
}

#[test]
fn interrupts_are_there_and_have_ids_of_their_own() {
    let interrupt = |id: &str| json!({"id": id, "reason": "tool_call"});
    let of = |interrupts: Value| finished_as(json!({"type": "interrupt", "interrupts": interrupts}));
    assert_broken(AgUiRule::InterruptsEmpty, &[started(), of(json!([]))]);
    assert_broken(AgUiRule::InterruptsEmpty, &[started(), finished_as(json!({"type": "interrupt"}))]);
    assert_broken(AgUiRule::InterruptRepeated, &[started(), of(json!([interrupt("i"), interrupt("i")]))]);
    assert_broken(AgUiRule::Malformed, &[started(), of(json!([{"id": "i"}]))]);
    assert_broken(
        AgUiRule::NullField,
        &[started(), of(json!([with(interrupt("i"), "message", Value::Null)]))],
    );
    assert_broken(
        AgUiRule::UnknownField,
        &[started(), of(json!([with(interrupt("i"), "urgent", json!(true))]))],
    );
    assert_legal(&[started(), of(json!([interrupt("i"), interrupt("j")]))]);
}

#[test]
fn outcomes_are_objects_of_a_known_form() {
    for outcome in [
        json!("interrupt"),
        json!({"type": "paused"}),
        json!({}),
        json!({"type": "success", "interrupts": []}),
        json!({"type": "cancelled", "reason": "x"}),
    ] {
        assert_broken(AgUiRule::Outcome, &[started(), finished_as(outcome)]);
    }
    let started_and =
        |outcome| [started(), subagent("STARTED", "a"), with(subagent("FINISHED", "a"), "outcome", outcome)];
    assert_broken(AgUiRule::Outcome, &started_and(json!({"type": "failed"})));
    assert_broken(AgUiRule::Outcome, &started_and(json!({"type": "success", "interruptIds": []})));
}

#[test]
fn older_clients_get_nothing_that_they_do_not_know() {
    let begin = json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"});
    let broken = |events: &[Value]| {
        let events: Vec<_> = std::iter::once(begin.clone()).chain(events.iter().cloned()).collect();
        broken_by_last(AgUiDialect::Before, &events)
    };
    assert_eq!(broken_by_last(AgUiDialect::Before, &[started()]), AgUiRule::UnknownField);
    assert_eq!(broken(&[subagent("STARTED", "a")]), AgUiRule::UnknownType);
    assert_eq!(broken(&[finished_as(json!({"type": "cancelled"}))]), AgUiRule::Outcome);
    let pending = json!({"type": "success", "pendingToolCallIds": ["c"]});
    assert_eq!(broken(&[finished_as(pending)]), AgUiRule::Outcome);
    let expiring = json!({"id": "i", "reason": "x", "expiresAt": "2026-01-01T00:00:00Z"});
    let interrupt = json!({"type": "interrupt", "interrupts": [expiring]});
    assert_eq!(broken(&[finished_as(interrupt)]), AgUiRule::UnknownField);
    let parts = with(call("RESULT"), "content", json!([{"type": "text", "text": "1"}]));
    assert_eq!(broken(std::slice::from_ref(&parts)), AgUiRule::Malformed);
    assert_eq!(broken(&[with(text("START", "m"), "subagentRunId", json!("a"))]), AgUiRule::UnknownField);
    assert_legal(&[started(), parts, finished()]);
}

#[test]
fn events_have_a_known_type_and_its_fields() {
    assert_broken(AgUiRule::NotAnEvent, &[json!({"kind": "RUN_STARTED"})]);
    assert_broken(AgUiRule::NotAnEvent, &[json!("RUN_STARTED")]);
    assert_broken(AgUiRule::UnknownType, &[json!({"type": "THINKING_START"})]);
    assert_broken(AgUiRule::UnknownField, &[with(started(), "extra", json!(1))]);
    assert_broken(AgUiRule::Malformed, &[json!({"type": "RUN_STARTED", "threadId": "t"})]);
    assert_broken(AgUiRule::Malformed, &[with(started(), "runId", json!(7))]);
    assert_broken(AgUiRule::Malformed, &[started(), with(text("START", "m"), "role", json!("tool"))]);
    assert_broken(
        AgUiRule::Malformed,
        &[started(), json!({"type": "REASONING_MESSAGE_START", "messageId": "g"})],
    );
    assert_broken(AgUiRule::Malformed, &[with(started(), "metadata", json!("x"))]);
}

#[test]
fn optional_fields_are_absent_and_never_null() {
    assert_broken(AgUiRule::NullField, &[with(started(), "parentRunId", Value::Null)]);
    assert_broken(AgUiRule::NullField, &[with(started(), "metadata", Value::Null)]);
    assert_broken(AgUiRule::NullField, &[started(), with(finished(), "outcome", Value::Null)]);
    assert_broken(
        AgUiRule::NullField,
        &[started(), with(subagent("STARTED", "a"), "description", Value::Null)],
    );
    let message = json!({"id": "a", "role": "assistant", "content": null});
    assert_broken(AgUiRule::NullField, &[started(), snapshot(json!([message]))]);
    assert_legal(&[started(), json!({"type": "CUSTOM", "name": "n", "value": null}), finished()]);
}

#[test]
fn timestamps_are_whole_numbers() {
    for wrong in [json!(1.5), json!("2026-01-01T00:00:00Z"), Value::Null] {
        assert_broken(AgUiRule::Timestamp, &[with(started(), "timestamp", wrong)]);
    }
    assert_legal(&[with(started(), "timestamp", json!(1_700_000_000_000_i64)), finished()]);
}

#[test]
fn client_is_not_sent_twice_what_it_would_append() {
    let whole = [text("START", "m"), text("CONTENT", "m"), text("END", "m")];
    let again = [vec![started()], whole.to_vec(), vec![text("START", "m")]].concat();
    assert_broken(AgUiRule::Restreamed, &again);
    let known = json!([
        {"id": "m", "role": "assistant", "content": "x", "toolCalls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]},
        {"id": "m_c", "role": "tool", "toolCallId": "c", "content": "1"},
    ]);
    for repeated in [text("START", "m"), call("START")] {
        assert_broken(AgUiRule::Restreamed, &[started(), snapshot(known.clone()), repeated]);
    }
    assert_broken(AgUiRule::ResultRepeated, &[started(), snapshot(known), call("RESULT")]);
    assert_broken(AgUiRule::ResultRepeated, &[started(), call("RESULT"), call("RESULT")]);
    let removed = [again[..4].to_vec(), vec![snapshot(json!([]))], whole.to_vec(), vec![finished()]].concat();
    assert_legal(&removed);
}

#[test]
fn result_waits_for_the_end_of_its_arguments_and_may_answer_an_earlier_run() {
    assert_broken(AgUiRule::AlreadyOpen, &[started(), call("START"), call("RESULT")]);
    assert_legal(&[started(), call("RESULT"), finished()]);
}

#[test]
fn snapshots_are_whole_and_between_messages() {
    assert_broken(AgUiRule::AlreadyOpen, &[started(), text("START", "m"), snapshot(json!([]))]);
    let user = json!({"id": "u", "role": "user", "content": "x"});
    assert_broken(AgUiRule::MessageRepeated, &[started(), snapshot(json!([user, user]))]);
    for message in [
        json!("u"),
        json!({"role": "user", "content": "x"}),
        json!({"id": 1, "role": "user", "content": "x"}),
        json!({"id": "u", "role": "note", "content": "x"}),
        json!({"id": "u", "role": "tool", "content": "x"}),
        json!({"id": "u", "role": "assistant", "toolCalls": [{"id": "c", "type": "function"}]}),
    ] {
        assert_broken(AgUiRule::Malformed, &[started(), snapshot(json!([message]))]);
    }
}

#[test]
fn patches_have_pointers_and_known_operations() {
    let delta = |operation: Value| json!({"type": "STATE_DELTA", "delta": [operation]});
    assert_broken(AgUiRule::PatchPath, &[started(), delta(json!({"op": "add", "path": "a", "value": 1}))]);
    assert_broken(AgUiRule::PatchPath, &[started(), delta(json!({"op": "move", "path": "/a"}))]);
    assert_broken(AgUiRule::Malformed, &[started(), delta(json!({"op": "append", "path": "/a"}))]);
    assert_broken(AgUiRule::Malformed, &[started(), delta(json!({"op": "add", "path": "/a"}))]);
    assert_legal(&[started(), delta(json!({"op": "add", "path": "/a", "value": null})), finished()]);
}

#[test]
fn stream_that_breaks_off_has_no_terminal_event() {
    let mut verifier = AgUiVerifier::new(AgUiDialect::V1_0);
    assert_eq!(verifier.finish().unwrap_err().rule, AgUiRule::MissingTerminal);
    verifier.check(&started()).unwrap();
    let fault = verifier.finish().unwrap_err();
    assert_eq!(fault.rule, AgUiRule::MissingTerminal);
    assert!(fault.to_string().starts_with("the end of the stream breaks the rule missing_terminal"));
}
