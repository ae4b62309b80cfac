//! The envelope and every payload have exactly the keys of the contract.

use std::collections::{BTreeMap, BTreeSet};

use machine::event::Fact;
use serde_json::Value;

use crate::stories;

/// Type, keys that are always there, keys that may be there. Each type that is stored is listed here.
pub(crate) const PAYLOADS: [(&str, &[&str], &[&str]); 29] = [
    ("run.queued", &["status"], &[]),
    ("run.started", &["status"], &[]),
    ("run.waiting", &["status", "pending"], &[]),
    ("run.resumed", &["status"], &[]),
    ("run.interrupting", &["status"], &["by"]),
    ("run.ending", &["termination"], &[]),
    ("run.completed", &["status", "termination", "usage", "error"], &["output"]),
    ("run.failed", &["status", "termination", "usage", "error"], &[]),
    ("run.interrupted", &["status", "termination", "usage", "error"], &["by"]),
    ("run.recovered", &["epoch", "lost"], &[]),
    ("step.started", &["step", "message_id"], &[]),
    ("step.ended", &["step", "message_id"], &[]),
    ("message.added", &["message"], &[]),
    ("model.retrying", &["attempt", "error", "at"], &[]),
    ("phase.answered", &["phase", "plugin", "actions"], &["call_id", "failed"]),
    ("state.changed", &["patch"], &[]),
    ("tool.requested", &["call_id", "tool", "arguments", "turn_id"], &[]),
    ("tool.approval_requested", &["call_id", "tool", "arguments", "approval_id"], &["expires_at"]),
    ("tool.approval_voided", &["call_id", "tool", "approval_id", "reason"], &["by"]),
    ("tool.approved", &["call_id", "tool", "approval_id", "by", "reason"], &["arguments"]),
    ("tool.denied", &["call_id", "tool", "approval_id", "by", "reason"], &[]),
    (
        "tool.suspended",
        &["call_id", "tool", "kind", "suspension_id", "arguments", "resume_mode"],
        &["question", "schema", "expires_at", "child_run_id", "rule", "let_through_by"],
    ),
    ("tool.resumed", &["call_id", "tool", "suspension_id", "mode", "by"], &[]),
    ("tool.execution_started", &["call_id", "tool", "attempt"], &["rule", "let_through_by"]),
    ("tool.execution_succeeded", &["call_id", "tool", "result"], &["warning"]),
    ("tool.execution_failed", &["call_id", "tool", "error"], &["outcome_unknown"]),
    ("tool.cancelled", &["call_id", "tool", "reason"], &["outcome_unknown"]),
    ("child.started", &["call_id", "run_id"], &[]),
    ("child.ended", &["call_id", "run_id"], &[]),
];

const MESSAGE: (&[&str], &[&str]) =
    (&["id", "run_id", "role", "content", "created_at"], &["tool_calls", "call_id", "status", "by"]);

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// What is missing and what is too much.
fn complaints(value: &Value, always: &[&str], maybe: &[&str]) -> Vec<String> {
    let there = keys(value);
    let missing = always.iter().filter(|key| !there.contains(*key)).map(|key| format!("lacks {key}"));
    let surplus = there
        .iter()
        .filter(|key| !always.contains(key) && !maybe.contains(key))
        .map(|key| format!("has {key}"));
    missing.chain(surplus).collect()
}

#[test]
fn every_payload_has_exactly_the_keys_of_the_contract() {
    let table: BTreeMap<&str, (&[&str], &[&str])> =
        PAYLOADS.iter().map(|(name, always, maybe)| (*name, (*always, *maybe))).collect();
    let mut met = BTreeSet::new();
    for story in stories::all() {
        for envelope in story.envelopes_as_json() {
            let name = envelope["type"].as_str().unwrap().to_owned();
            let (always, maybe) = table.get(name.as_str()).unwrap_or_else(|| panic!("{name} is in no table"));
            let payload = &envelope["payload"];
            assert_eq!(complaints(payload, always, maybe), [""; 0], "{}: {envelope}", story.name);
            if name == "message.added" {
                assert_eq!(complaints(&payload["message"], MESSAGE.0, MESSAGE.1), [""; 0], "{envelope}");
            }
            met.insert(name);
        }
    }
    let all: BTreeSet<String> = table.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(met, all, "no story has an event of a type of the contract");
}

#[test]
fn every_kind_of_fact_is_sent_and_none_is_left_out() {
    let mut names = BTreeSet::new();
    for story in stories::all() {
        assert_eq!(story.envelopes().len(), story.events.len(), "{}", story.name);
        names.extend(story.events.iter().map(|event| fact_name(&event.fact)));
    }
    // A kind of fact that no story has would not be tested here.
    assert_eq!(names.len(), 27, "{names:?}");
}

/// Without a wildcard: a further kind of fact has to be counted here.
fn fact_name(fact: &Fact) -> &'static str {
    match fact {
        Fact::RunQueued(_)
        | Fact::RunStarted { .. }
        | Fact::RunWaiting { .. }
        | Fact::RunResumed {}
        | Fact::RunInterrupting { .. }
        | Fact::RunEnding { .. }
        | Fact::RunEnded { .. }
        | Fact::RunRecovered { .. }
        | Fact::StepStarted { .. }
        | Fact::StepEnded { .. }
        | Fact::MessageAdded(_)
        | Fact::ModelRetrying { .. }
        | Fact::PhaseAnswered { .. }
        | Fact::StateChanged { .. }
        | Fact::ToolRequested { .. }
        | Fact::ApprovalRequested(_)
        | Fact::ApprovalVoided { .. }
        | Fact::ToolApproved { .. }
        | Fact::ToolDenied { .. }
        | Fact::ToolSuspended(_)
        | Fact::ToolResumed { .. }
        | Fact::ExecutionStarted { .. }
        | Fact::ExecutionSucceeded { .. }
        | Fact::ExecutionFailed { .. }
        | Fact::ToolCancelled { .. }
        | Fact::ChildStarted { .. }
        | Fact::ChildEnded { .. } => fact.name(),
    }
}

#[test]
fn d30_the_envelope_has_its_keys_and_the_numbers_grow_by_one() {
    let always = ["seq", "type", "thread_id", "run_id", "step", "ts", "v", "payload"];
    for story in stories::all() {
        for (index, envelope) in story.envelopes_as_json().iter().enumerate() {
            assert_eq!(complaints(envelope, &always, &["checkpoint"]), [""; 0], "{envelope}");
            assert_eq!(envelope["seq"], index + 1, "{}", story.name);
            assert_eq!(envelope["v"], 1);
        }
    }
}

#[test]
fn d18_every_event_of_a_run_names_the_same_thread_and_run() {
    for story in stories::all() {
        let (thread, run) = story.ids();
        for envelope in story.envelopes() {
            assert_eq!(
                (envelope.thread_id.as_str(), envelope.run_id.as_str()),
                (thread.as_str(), run.as_str())
            );
        }
    }
}

#[test]
fn d32_the_terminal_event_is_last_and_there_is_exactly_one() {
    let terminal = ["run.completed", "run.failed", "run.interrupted"];
    let mut ended = 0;
    for story in stories::all()
        .iter()
        .filter(|story| story.events.last().is_some_and(|event| matches!(event.fact, Fact::RunEnded { .. })))
    {
        let sent = story.envelopes();
        let ends: Vec<u64> =
            sent.iter().filter(|event| terminal.contains(&event.name)).map(|event| event.seq).collect();
        assert_eq!(ends, [sent.len() as u64], "{}", story.name);
        assert!(
            sent.iter().all(|event| event.is_terminal() == terminal.contains(&event.name)),
            "{}",
            story.name
        );
        ended += 1;
    }
    assert_eq!(ended, 19, "how many stories end");
}

#[test]
fn the_last_event_of_a_commit_names_its_checkpoint_and_no_other_does() {
    for story in stories::all() {
        for (committed, sent) in story.committed().iter().zip(story.envelopes_as_json()) {
            assert_eq!(committed.checkpoint.is_some(), sent.get("checkpoint").is_some(), "{sent}");
        }
    }
}
