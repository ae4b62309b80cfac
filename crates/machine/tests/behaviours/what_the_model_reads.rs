//! The words that a model reads about each outcome of a call, and the ids under which it reads them.

use std::sync::Arc;

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{Message, UserMessage};
use machine::id::{Digest, idempotency_key};
use machine::input::{Outcome, ToolAnswer};
use machine::model_text::calls_dropped;
use machine::phase::SuspendRequest;
use machine::policy::Policy;
use machine::suspension::ResumeMode;
use machine::transcript::{AssistantCall, ModelMessage, Transcript};
use machine::{Effect, Fact, Input, Revision};
use serde_json::{Value, json};

use crate::plain_transcript::Compared;
use crate::props::{lines, payload};
use crate::story::{Story, cancel, order, pending, question, resume, success, unknown, valid};

/// What the model reads about a call of `tool` whose attempt came back like this.
fn read(tool: &str, outcome: Outcome) -> String {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    story.returns("A", outcome);
    story.tool_text("A")
}

#[test]
fn a_result_is_read_as_text_and_json_as_compact_json() {
    let table = [
        (json!("plain words"), "plain words"),
        (json!(""), ""),
        (json!({"a": [1, 2.5, null]}), r#"{"a":[1,2.5,null]}"#),
        (json!([]), "[]"),
        (json!(true), "true"),
        (json!(7), "7"),
        (Value::Null, "null"),
    ];
    for (value, text) in table {
        assert_eq!(read("echo", success(value)), text);
    }
    let warned = ToolAnswer::Success { value: json!("ok").into(), warning: Some("slow".into()) };
    assert_eq!(read("echo", Outcome::Answered(warned)), "ok\nWarning: slow");
}

#[test]
fn an_error_is_read_as_an_error() {
    let error = ToolAnswer::Error { message: "no such account".into() };
    assert_eq!(read("echo", Outcome::Answered(error)), "Error: no such account");
    let refused = Outcome::NotSent { why: "connection refused".into(), retry_after_ms: None };
    assert_eq!(read("post", refused), "Error: connection refused");
}

/// What the model reads about a held call of `tool` after this decision.
fn decided(tool: &str, outcome: Option<Outcome>, action: DecisionAction) -> String {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    if let Some(outcome) = outcome {
        story.returns("A", outcome);
    }
    story.decides("A", action);
    story.tool_text("A")
}

#[test]
fn a_denied_or_cancelled_call_is_read_with_its_name_and_reason() {
    let because = |text: &str| DecisionAction::Cancel { reason: Some(text.into()), then: None };
    assert_eq!(decided("transfer", None, because("too much")), "Denied by ana: too much");
    assert_eq!(decided("transfer", None, cancel()), "Denied by ana");
    assert_eq!(decided("pick_file", None, because("closed the window")), "Cancelled: closed the window");
    assert_eq!(decided("pick_file", None, cancel()), "Cancelled");
    assert_eq!(decided("webhook", None, cancel()), "Cancelled");
    let asked = pending(ResumeMode::ReplayToolCall);
    assert_eq!(decided("echo", Some(asked), cancel()), "Cancelled");
    assert_eq!(decided("post", Some(unknown()), cancel()), "Cancelled; it may have taken effect");
    let failed = DecisionAction::Resume(Resume {
        payload: Payload::Error("user has no files".into()),
        ..Resume::default()
    });
    assert_eq!(decided("pick_file", None, failed), "Error: user has no files");
}

#[test]
fn an_expired_call_says_so() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    let asks = SuspendRequest { expires_in_ms: Some(10), ..question(ResumeMode::ReplayToolCall) };
    story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
    story.later(10);
    story.ok(Input::DeadlineReached);
    assert_eq!(story.tool_text("A"), "Cancelled: expired");
}

#[test]
fn arguments_that_the_approver_changed_are_reported_with_the_result() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({"to": "bob", "amount": 500}))]);
    story.model_answers(answered);
    story.pass_gates();
    let edited = json!({"to": "bob", "amount": 5});
    let action =
        DecisionAction::Resume(Resume { arguments: Some(valid(edited.clone())), ..Resume::default() });
    story.decides("A", action);
    story.succeeds("A");
    let text = format!("Arguments were changed by the approver to: {edited}\nok");
    assert_eq!(story.tool_text("A"), text);
    let asked = story.transcript().into_iter().find_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => Some(calls),
        _ => None,
    });
    let own = valid(json!({"to": "bob", "amount": 500}));
    let call = AssistantCall { id: "A".into(), tool: "transfer".into(), arguments: own };
    assert_eq!(asked, Some(vec![call]), "the assistant message keeps the model's own");
}

#[test]
fn every_prefix_of_a_log_gives_one_result_per_call_directly_after_its_message() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "echo"), ("C", "post")]);
    story.succeeds("B");
    story.returns("C", unknown());
    story.approves("A");
    story.succeeds("A");
    story.decides("C", cancel());
    story.asks_for(&[("D", "echo")]);
    story.fails("D");
    story.says("done");
    let mut transcript = Transcript::default();
    for event in &story.log {
        transcript.push(event);
        let mut expected: Vec<String> = Vec::new();
        for message in transcript.model_input().iter() {
            match message {
                ModelMessage::Tool { call, .. } => assert_eq!(call.as_str(), expected.remove(0)),
                ModelMessage::Assistant { calls, .. } => {
                    assert_eq!(expected, Vec::<String>::new());
                    expected = calls.iter().map(|call| call.id.to_string()).collect();
                }
                ModelMessage::User { .. } | ModelMessage::Note { .. } | ModelMessage::Notice { .. } => {
                    assert_eq!(expected, Vec::<String>::new());
                }
            }
        }
        assert_eq!(expected, Vec::<String>::new(), "after {}", event.seq);
    }
}

#[test]
fn message_ids_are_derived_from_run_step_and_call() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    story.says("bye");
    let ids: Vec<&str> = story
        .log
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::MessageAdded(message) => Some(Message::id(message).as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["msg_user", "msg_run_1_1", "msg_A", "msg_run_1_2"]);
}

#[test]
fn a_retried_step_has_the_same_message_id() {
    let mut story = Story::begin();
    let failure =
        machine::input::ModelFailure { message: "cut".into(), retryable: true, retry_after_ms: None };
    story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    story.says("bye");
    let started = payload(&story.log, "step.started")["message_id"].clone();
    let ended = payload(&story.log, "step.ended")["message_id"].clone();
    assert_eq!((started, ended), (json!("msg_run_1_1"), json!("msg_run_1_1")));
}

#[test]
fn ids_of_suspensions_and_children_are_derived_so_that_a_repeat_has_the_same_ones() {
    let ids = |run: &str| {
        let mut order = order(Policy::default());
        order.run_id = run.into();
        let mut story = Story::queued_with(Revision::default(), order);
        story.ok(Input::Start { after: None });
        story.asks_for(&[("A", "transfer"), ("B", "transfer"), ("C", "pick_file"), ("D", "researcher")]);
        let open: Vec<String> =
            story.run.control.pending().iter().map(|open| open.suspension_id.to_string()).collect();
        let child = payload(&story.log, "child.started");
        (open, child["run_id"].clone(), child["thread_id"].clone())
    };
    let (open, child, thread) = ids("run_1");
    assert_eq!(ids("run_1"), (open.clone(), child.clone(), thread.clone()));
    let other = ids("run_2");
    assert!(open.iter().all(|id| !other.0.contains(id)), "another run has others");
    assert!(child != other.1 && thread != other.2);
    let prefixes: Vec<&str> = open.iter().map(|id| id.split('_').next().unwrap()).collect();
    assert_eq!(prefixes, ["apr", "apr", "sus", "sus"]);
    assert!(child.as_str().unwrap().starts_with("run_") && thread.as_str().unwrap().starts_with("thr_"));
    let mut distinct = open.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 4);
    for id in open {
        let uuid = id.split('_').nth(1).unwrap();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes().get(14), Some(&b'7'), "a version 7 UUID: {uuid}");
    }
}

fn key(story: &Story) -> String {
    idempotency_key(&story.run.control.run, &"A".into(), &story.call("A").arguments)
}

#[test]
fn the_idempotency_key_is_stable_over_attempts_and_another_one_for_edited_arguments() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let first = key(&story);
    story.returns("A", unknown());
    story.approves("A"); // in doubt: run it again
    assert_eq!((story.call("A").attempts, key(&story)), (2, first.clone()));
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now });
    story.ok(Input::InboxDrained);
    story.decides("A", resume());
    assert_eq!((story.call("A").attempts, key(&story)), (3, first.clone()));
    assert_eq!(first.len(), 64);

    let mut edited = Story::begin();
    edited.asks_for(&[("A", "transfer")]);
    let before = key(&edited);
    let action = DecisionAction::Resume(Resume { arguments: Some(valid(json!({}))), ..Resume::default() });
    edited.decides("A", action);
    assert_ne!(key(&edited), before);
    let digest = Digest::sha256(b"x");
    assert_ne!(
        idempotency_key(&"ab".into(), &"c".into(), &digest),
        idempotency_key(&"a".into(), &"bc".into(), &digest),
        "where one part ends and the next begins counts"
    );
}

#[test]
fn a_model_call_says_how_many_messages_it_reads() {
    let mut story = Story::begin();
    let read = |story: &Story| {
        story.run.wanted().into_iter().find_map(|effect| match effect {
            Effect::CallModel { message_count, .. } => Some(message_count),
            _ => None,
        })
    };
    assert_eq!(read(&story), Some(1));
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    assert_eq!(read(&story), None);
    story.succeeds("B");
    assert_eq!(read(&story), Some(4));
    assert_eq!(lines(&story).len(), 4);
}

#[test]
fn arguments_that_an_answer_set_are_reported_with_the_result() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.returns("A", pending(ResumeMode::PassDecisionToTool));
    let other = json!({"of": "another"});
    let (payload_arguments, payload) = (Some(valid(other.clone())), Payload::Result(other.clone().into()));
    story.decides("A", DecisionAction::Resume(Resume { payload_arguments, payload, ..Resume::default() }));
    story.succeeds("A");
    let text = story.tool_text("A");
    assert!(text.contains(&other.to_string()) && text.ends_with("\nok"), "{text}");
    // A bare yes keeps the model's own, and nothing is said.
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.returns("A", pending(ResumeMode::PassDecisionToTool));
    story.answers("A", json!(true));
    story.succeeds("A");
    assert_eq!(story.tool_text("A"), "ok");
}

#[test]
fn each_of_several_queued_runs_begins_with_what_its_own_user_said() {
    let queued = |run: &str, words: &str| {
        let mut order = order(Policy::default());
        order.run_id = run.into();
        order.message =
            Some(UserMessage { id: format!("msg_of_{run}").into(), content: json!(words).into(), by: None });
        Story::queued_with(Revision::default(), order)
    };
    let (mut first, mut second) = (queued("run_1", "first"), queued("run_2", "second"));
    let mut transcript = Compared::default();
    // Both stand in the queue before the first one starts.
    first.log.iter().chain(&second.log).for_each(|event| transcript.push(event));
    for story in [&mut first, &mut second] {
        story.ok(Input::Start { after: None });
        story.says("done");
        story.log.iter().skip(1).for_each(|event| transcript.push(event));
    }
    let read: Vec<Value> = transcript
        .shared
        .model_input()
        .iter()
        .filter_map(|message| match message {
            ModelMessage::User { content, .. } => Some((**content).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(read, [json!("first"), json!("second")]);
}

#[test]
fn arguments_that_an_answer_set_are_reported_as_the_answers_and_not_as_the_approvers() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    story.returns("A", pending(ResumeMode::PassDecisionToTool));
    let chosen = json!({"of": "the red one"});
    let action = DecisionAction::Resume(Resume {
        payload: Payload::Result(Arc::new(chosen.clone())),
        payload_arguments: Some(valid(chosen.clone())),
        ..Resume::default()
    });
    story.decides("A", action);
    story.succeeds("A");
    let text = format!("Arguments were changed by the answer to: {chosen}\nok");
    assert_eq!(story.tool_text("A"), text);
}

#[test]
fn the_model_reads_how_many_of_its_calls_were_accepted() {
    let rest = "did not run, because too many calls would have been open at the same time. Ask again for those that \
                are still needed.]";
    let only = "[Only the first 2 of the 5 calls in your last answer were accepted.";
    assert_eq!(calls_dropped(2, 3), format!("{only} The other 3 {rest}"));
    let none = "[None of the 3 calls in your last answer were accepted.";
    assert_eq!(calls_dropped(0, 3), format!("{none} The other 3 {rest}"));
}
