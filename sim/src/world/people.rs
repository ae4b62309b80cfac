//! People, front ends and webhooks that decide: in time or too late, correctly or not, once or twice.

use std::sync::Arc;

use machine::Timestamp;
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::id::{DecisionId, Digest, Principal, SuspensionId};
use machine::policy::OnReject;
use machine::rules::Asker;
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::tool::Arguments;
use serde_json::{Value, json};

use crate::judge::ledger::{CallLedger, Open};
use crate::play::tape::Tape;
use crate::world::arguments;
use crate::world::submit::Form;

const PEOPLE: [&str; 3] = ["ana", "bo", "cy"];

/// A decision, with what its author knows about it.
#[derive(Clone, Debug)]
pub struct Written {
    pub decision: Decision,
    pub form: Form,
}

pub fn somebody(tape: &mut Tape) -> Principal {
    Principal::from(PEOPLE[tape.pick(PEOPLE.len())])
}

/// A decision about an open suspension. Mostly a valid one.
pub fn draw_decision(
    tape: &mut Tape,
    call: &CallLedger,
    open: &Open,
    definition_now: Option<Digest>,
    now: Timestamp,
    number: u64,
) -> Written {
    let (action, form) = draw_action(tape, call, open);
    let id = tape.chance(70).then(|| DecisionId::from(format!("d{number}")));
    let decision = Decision {
        id,
        call: call.id.clone(),
        suspension: open.id.clone(),
        by: somebody(tape),
        accepted_at: now,
        definition_now,
        action,
    };
    Written { decision, form }
}

/// Another person resends the decision, possibly with other content.
pub fn say_otherwise(tape: &mut Tape, written: &mut Written) {
    written.decision.by = somebody(tape);
    if tape.chance(50) {
        written.form = Form::Good;
        written.decision.action = DecisionAction::Cancel { reason: None, then: None };
    }
}

/// A decision for a call that is not held yet, written without knowing how it will be held.
pub fn draw_early(
    tape: &mut Tape,
    call: &CallLedger,
    definition_now: Option<Digest>,
    now: Timestamp,
    number: u64,
) -> Decision {
    let action = if tape.chance(70) {
        DecisionAction::Resume(Resume::default())
    } else {
        DecisionAction::Cancel { reason: None, then: None }
    };
    Decision {
        id: Some(DecisionId::from(format!("d{number}"))),
        call: call.id.clone(),
        suspension: SuspensionId::from("not yet"),
        by: somebody(tape),
        accepted_at: now,
        definition_now,
        action,
    }
}

fn draw_action(tape: &mut Tape, call: &CallLedger, open: &Open) -> (DecisionAction, Form) {
    if tape.chance(22) {
        let then = tape.among([None, Some(OnReject::Continue), Some(OnReject::EndRun)]);
        let reason = tape.chance(50).then(|| "no".to_owned());
        return (DecisionAction::Cancel { reason, then }, Form::Good);
    }
    let mut resume = Resume { note: tape.chance(20).then(|| "fine by me".into()), ..Resume::default() };
    let form = match open.kind {
        SuspensionKind::Approval => approve(tape, &mut resume, asked_by_the_gate(call, open)),
        SuspensionKind::InDoubt => resolve_doubt(tape, &mut resume),
        SuspensionKind::ClientTool | SuspensionKind::External | SuspensionKind::Question => {
            answer(tape, &mut resume, open.mode)
        }
        SuspensionKind::ChildRun => Form::Malformed,
    };
    if tape.chance(15) {
        let seen = if tape.chance(50) { call.arguments.digest() } else { Digest([9; 32]) };
        resume.expect_digest = Some(seen);
    }
    if tape.chance(4) {
        resume.payload_fault = Some("it is no number".into());
        return (DecisionAction::Resume(resume), Form::Malformed);
    }
    (DecisionAction::Resume(resume), form)
}

/// A plain yes, an edit, or one of the answers that must never count as a yes.
fn approve(tape: &mut Tape, resume: &mut Resume, is_grantable: bool) -> Form {
    resume.apply_to_future = tape.chance(12);
    let form = draw_yes(tape, resume);
    // A plugin that asked would ask again, so nothing can be granted.
    if resume.apply_to_future && !is_grantable { Form::Malformed } else { form }
}

/// Whether this suspension was requested by something other than a plugin.
fn asked_by_the_gate(call: &CallLedger, open: &Open) -> bool {
    let latest = call.asked.iter().rev().take(open.asker_count);
    latest.into_iter().any(|asker| !matches!(asker, Asker::Plugin(_)))
}

fn draw_yes(tape: &mut Tape, resume: &mut Resume) -> Form {
    match tape.pick(16) {
        0..=6 => Form::Good,
        7 => {
            resume.payload = result(json!(true));
            Form::Good
        }
        8 | 9 => {
            resume.arguments = Some(arguments::draw_valid(tape));
            Form::Good
        }
        10 => {
            resume.mode = Some(ResumeMode::ReplayToolCall);
            Form::Good
        }
        11 => {
            resume.payload = result(tape_value(tape));
            Form::Malformed
        }
        12 => {
            resume.payload = Payload::Error("broke".into());
            Form::Malformed
        }
        13 => {
            resume.arguments = Some(arguments::malformed());
            Form::BadEdit
        }
        _ => {
            resume.mode =
                Some(tape.among([ResumeMode::UseDecisionAsToolResult, ResumeMode::PassDecisionToTool]));
            Form::Malformed
        }
    }
}

/// Values that do not mean yes: null, false, a number, a text.
fn tape_value(tape: &mut Tape) -> Value {
    match tape.pick(4) {
        0 => Value::Null,
        1 => json!(false),
        2 => json!("yes"),
        _ => json!(1),
    }
}

fn resolve_doubt(tape: &mut Tape, resume: &mut Resume) -> Form {
    match tape.pick(6) {
        0..=2 => Form::Good,
        3 => {
            resume.payload = result(tape_value(tape));
            Form::Good
        }
        4 => {
            // A person cannot know that it failed.
            resume.payload = Payload::Error("it did not happen".into());
            Form::Malformed
        }
        _ => {
            if tape.chance(50) {
                resume.arguments = Some(arguments::draw_valid(tape));
            } else {
                resume.mode = Some(ResumeMode::ReplayToolCall);
            }
            Form::Malformed
        }
    }
}

fn answer(tape: &mut Tape, resume: &mut Resume, own_mode: ResumeMode) -> Form {
    if tape.chance(20) {
        resume.mode = Some(ResumeMode::ALL[tape.pick(ResumeMode::ALL.len())]);
    }
    resume.payload = match tape.pick(8) {
        0..=2 => result(json!({"chosen": 1})),
        3 => result(json!(true)),
        4 => result(json!(false)),
        5 => result(Value::Null),
        6 => Payload::Error("cannot".into()),
        _ => Payload::Absent,
    };
    let arguments = match tape.pick(4) {
        0 | 1 => Some(arguments::draw_valid(tape)),
        2 => Some(arguments::malformed()),
        _ => None,
    };
    let mode = resume.mode.unwrap_or(own_mode);
    if mode == ResumeMode::PassDecisionToTool {
        resume.payload_arguments = arguments;
    } else if tape.chance(6) {
        resume.arguments = arguments;
    }
    if resume.arguments.is_some() {
        return Form::Malformed;
    }
    judge_answer(&resume.payload, resume.payload_arguments.as_ref(), mode)
}

/// The table of answers, written independently of the machine.
fn judge_answer(payload: &Payload, as_arguments: Option<&Arguments>, mode: ResumeMode) -> Form {
    let good = match (payload, mode) {
        (Payload::Error(_), _) => true,
        (Payload::Absent, ResumeMode::ReplayToolCall) => true,
        (Payload::Absent, ResumeMode::UseDecisionAsToolResult | ResumeMode::PassDecisionToTool) => false,
        (Payload::Result(_), ResumeMode::UseDecisionAsToolResult) => true,
        (Payload::Result(value), ResumeMode::ReplayToolCall) => !is_no(value),
        (Payload::Result(value), ResumeMode::PassDecisionToTool) => {
            value.as_bool() == Some(true)
                || (!is_no(value) && matches!(as_arguments, Some(Arguments::Valid { .. })))
        }
    };
    if good { Form::Good } else { Form::Malformed }
}

fn is_no(value: &Value) -> bool {
    value.is_null() || value.as_bool() == Some(false)
}

fn result(value: Value) -> Payload {
    Payload::Result(Arc::new(value))
}

/// The answer that lets a held call continue. Used to bring a world to rest.
#[must_use]
pub fn plain_answer(
    call: &CallLedger,
    open: &Open,
    definition_now: Option<Digest>,
    now: Timestamp,
    retries: bool,
) -> Decision {
    let resume = match open.kind {
        SuspensionKind::InDoubt if !retries => {
            Resume { payload: result(json!("it happened")), ..Resume::default() }
        }
        SuspensionKind::Approval | SuspensionKind::InDoubt | SuspensionKind::ChildRun => Resume::default(),
        SuspensionKind::ClientTool | SuspensionKind::External | SuspensionKind::Question => {
            Resume { payload: result(json!(true)), ..Resume::default() }
        }
    };
    Decision {
        id: None,
        call: call.id.clone(),
        suspension: open.id.clone(),
        by: Principal::from("ana"),
        accepted_at: now,
        definition_now,
        action: DecisionAction::Resume(resume),
    }
}
