//! The state and the model input as a person reads them, under names that outlive the layout of the control.

use machine::Control;
use machine::call::{Call, CallState, Reported};
use machine::control::Stage;
use machine::phase::Phase;
use machine::suspension::Suspension;
use machine::tool::Arguments;
use machine::transcript::{AssistantCall, Messages, ModelMessage};
use serde_json::{Value, json};

pub(crate) fn control(control: &Control) -> Value {
    json!({
        "run": control.run,
        "thread": control.thread,
        "agent": control.agent,
        "revision": control.revision,
        "parent": control.parent,
        "policy": control.policy,
        "loosened_by": control.loosened_by,
        "after": control.after,
        "seq": control.seq,
        "at": control.at,
        "status": control.status.to_string(),
        "stage": stage(&control.stage),
        "model": model(&control.stage),
        "step": control.step,
        "step_open": control.step_open,
        "matched": control.matched,
        "output": control.output,
        "output_corrected": control.output_corrected,
        "calls": control.calls.iter().map(call).collect::<Vec<_>>(),
        "pending": control.pending(),
        "recently_settled": control.recent.len(),
        "usage": control.usage,
        "reserved_tokens": control.reserved_tokens,
        "consecutive_errors": control.consecutive_errors,
        "active_ms": control.active_ms,
        "message_count": control.message_count,
        "suspension_count": control.suspension_count,
    })
}

const fn stage(stage: &Stage) -> &'static str {
    match stage {
        Stage::Queued => "Queued",
        Stage::Starting => "Starting",
        Stage::Inferring(_) => "Inferring",
        Stage::Acting => "Acting",
        Stage::StepEnding => "StepEnding",
        Stage::BetweenSteps => "Resting",
        Stage::Ending(_) => "Ending",
        Stage::Ended => "Ended",
    }
}

fn model(stage: &Stage) -> Value {
    let Stage::Inferring(inferring) = stage else { return Value::Null };
    let answered: Vec<String> = Phase::ALL
        .into_iter()
        .filter(|phase| inferring.answered.has(*phase))
        .map(|phase| phase.to_string())
        .collect();
    json!({
        "attempt": inferring.attempt,
        "failures": inferring.failures,
        "not_before": inferring.not_before,
        "lost": inferring.lost,
        "answered": answered,
        "adjusted_by": inferring.adjusted_by,
    })
}

fn call(call: &Call) -> Value {
    let lost = match &call.state {
        CallState::Running(attempt) => attempt.lost,
        _ => None,
    };
    let said = match call.reported {
        Reported::Nothing => "nothing",
        Reported::Placeholder => "placeholder",
        Reported::Result => "result",
    };
    json!({
        "id": call.id,
        "step": call.step,
        "tool": call.tool,
        "arguments": call.arguments,
        "arguments_seq": call.arguments_seq,
        "status": call.status().to_string(),
        "settled_seq": call.settled_seq(),
        "suspension": call.suspension().map(suspension),
        "lost": lost,
        "attempts": call.attempts,
        "failures": call.failures,
        "class": call.class,
        "asked": call.asked,
        "ask_rounds": call.ask_rounds,
        "pending_rounds": call.pending_rounds,
        "approved": call.approved,
        "doubted": call.doubted,
        "must_ask": call.must_ask,
        "answer_seq": call.answer_seq,
        "resume_state_seq": call.resume_state_seq,
        "notes": call.notes,
        "after_answered": call.after_answered,
        "said": said,
    })
}

fn suspension(open: &Suspension) -> Value {
    json!({
        "id": open.id,
        "kind": open.held.kind(),
        "mode": open.mode,
        "expires_at": open.expiry.map(|expiry| expiry.at),
        "seq": open.seq,
    })
}

/// What the model reads, a message a line.
pub(crate) fn model_input(messages: &Messages) -> Vec<String> {
    messages
        .iter()
        .map(|message| match message {
            ModelMessage::User { content, .. } => match content.as_str() {
                Some(text) => format!("user: {text}"),
                None => format!("user: {content}"),
            },
            ModelMessage::Assistant { text, calls, .. } => {
                let mut words: Vec<String> = vec!["assistant:".into()];
                words.extend((!text.is_empty()).then(|| text.clone()));
                words.extend(calls.iter().map(assistant_call));
                words.join(" ")
            }
            ModelMessage::Tool { call, text } => format!("tool {call}: {text}"),
            ModelMessage::Note { call, text, .. } => format!("note {call}: {text}"),
            ModelMessage::Notice { text } => format!("notice: {text}"),
        })
        .map(|line| line.replace('\n', "\\n"))
        .collect()
}

fn assistant_call(call: &AssistantCall) -> String {
    match &call.arguments {
        Arguments::Valid { value, .. } => format!("[{} {} {value}]", call.id, call.tool),
        Arguments::Invalid { raw, .. } => format!("[{} {} {raw}]", call.id, call.tool),
    }
}

/// Where the state differs from what was expected of it: only fields that are named count, and a field that nobody
/// knows is a difference.
pub(crate) fn differences(expected: &Value, actual: &Value, path: &str) -> Vec<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected
            .iter()
            .flat_map(|(name, expected)| match actual.get(name) {
                Some(actual) => differences(expected, actual, &format!("{path}.{name}")),
                None => vec![format!("{path}.{name}: there is no such field")],
            })
            .collect(),
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => expected
            .iter()
            .zip(actual)
            .enumerate()
            .flat_map(|(index, (expected, actual))| {
                differences(expected, actual, &format!("{path}[{index}]"))
            })
            .collect(),
        _ if expected == actual => Vec::new(),
        _ => vec![format!("{path}: expected {expected}, found {actual}")],
    }
}
