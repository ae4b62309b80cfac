//! The events and live frames of a run in the form that the protocol translators read.

use protocols::feed::{
    Body, CompletedReason, Item, RequestedCall, RunEnd, Suspension, SuspensionKind as Kind, Usage, WaitingOn,
};
use serde_json::value::{RawValue, to_raw_value};

use super::enums::{Role, RunStatus, SuspensionKind};
use super::event::Envelope;
use super::live::{DeltaPayload, Frame, LivePayload};
use super::message::{Message, ToolCall};
use super::payload::{Decided, Ended, Payload, Status, Suspended};
use super::run::Reason;
use super::time::Time;

/// A stored event.
#[must_use]
pub fn event_item(envelope: Envelope) -> Item {
    let Envelope { seq, name, thread_id, run_id, step, ts, payload, .. } = envelope;
    Item {
        thread_id,
        run_id,
        seq: Some(seq),
        step,
        at: ts.map_or(0, milliseconds),
        body: event_body(name, payload),
    }
}

/// A live frame.
#[must_use]
pub fn live_item(frame: Frame) -> Item {
    let Frame { name, thread_id, run_id, step, ts, payload, .. } = frame;
    let body = match payload {
        LivePayload::Delta(delta) => delta_body(name, delta),
        LivePayload::Reset(reset) => Body::StepReset { message_id: reset.message_id, attempt: reset.attempt },
        LivePayload::Log(log) => Body::ToolLog { call_id: log.call_id, tool: log.tool, text: log.text },
        LivePayload::Progress(note) => {
            Body::ToolProgress { call_id: note.call_id, tool: note.tool, progress: note.progress }
        }
    };
    Item { thread_id, run_id, seq: None, step, at: milliseconds(ts), body }
}

fn milliseconds(time: Time) -> i64 {
    i64::try_from(time.0.0).unwrap_or(i64::MAX)
}

fn delta_body(name: &str, delta: DeltaPayload) -> Body {
    let DeltaPayload { message_id, attempt, index, offset, text } = delta;
    match name {
        "reasoning.delta" => Body::ReasoningDelta { message_id, attempt, offset, text },
        "tool.arguments_delta" => Body::ArgumentsDelta { message_id, attempt, index, offset, text },
        _ => Body::TextDelta { message_id, attempt, offset, text },
    }
}

/// Some payloads have one form for several types of event.
fn event_body(name: &str, payload: Payload) -> Body {
    match payload {
        Payload::Status(status) => status_body(name, &status),
        Payload::Ending(_) => Body::RunEnding,
        Payload::Ended(ended) => ended_body(ended),
        Payload::Recovered(_) => Body::RunRecovered,
        Payload::Step(step) if name == "step.started" => Body::StepStarted { message_id: step.message_id },
        Payload::Step(step) => Body::StepEnded { message_id: step.message_id },
        Payload::Message(added) => message_body(added.message),
        Payload::Retrying(retrying) => Body::ModelRetrying { attempt: retrying.attempt },
        Payload::Phase(_) => Body::PhaseAnswered,
        Payload::State(changed) => {
            Body::StateChanged { patch: serde_json::to_value(&changed.patch).unwrap_or_default() }
        }
        Payload::Requested(asked) => Body::CallRequested {
            call: RequestedCall { call_id: asked.call_id, tool: asked.tool, arguments: asked.arguments },
        },
        Payload::ApprovalRequested(asked) => Body::ApprovalRequested {
            call: RequestedCall { call_id: asked.call_id, tool: asked.tool, arguments: asked.arguments },
            approval_id: asked.approval_id,
            expires_at: asked.expires_at.map(Time::text),
        },
        Payload::ApprovalVoided(voided) => {
            Body::ApprovalVoided { call_id: voided.call_id, approval_id: voided.approval_id }
        }
        Payload::Decided(decided) => decided_body(name, decided),
        Payload::Suspended(suspended) => suspended_body(suspended),
        Payload::Resumed(resumed) => Body::CallResumed {
            call_id: resumed.call_id,
            tool: resumed.tool,
            suspension_id: resumed.suspension_id,
        },
        Payload::Started(started) => {
            Body::ExecutionStarted { call_id: started.call_id, tool: started.tool, attempt: started.attempt }
        }
        Payload::Succeeded(done) => Body::Succeeded {
            call_id: done.call_id,
            tool: done.tool,
            result: raw_json(&done.result),
            warning: done.warning,
        },
        Payload::Failed(failed) => Body::Failed {
            call_id: failed.call_id,
            tool: failed.tool,
            message: failed.error.message,
            outcome_unknown: failed.outcome_unknown.unwrap_or(false),
        },
        Payload::Cancelled(cancelled) => Body::Cancelled {
            call_id: cancelled.call_id,
            tool: cancelled.tool,
            reason: cancelled.reason,
            outcome_unknown: cancelled.outcome_unknown.unwrap_or(false),
        },
        Payload::Child(child) if name == "child.started" => {
            Body::ChildStarted { call_id: child.call_id, run_id: child.run_id }
        }
        Payload::Child(child) => Body::ChildEnded { call_id: child.call_id, run_id: child.run_id },
        Payload::Unreadable(_) => Body::Unreadable,
    }
}

fn status_body(name: &str, status: &Status) -> Body {
    match name {
        "run.queued" => Body::RunQueued,
        "run.started" => Body::RunStarted,
        "run.resumed" => Body::RunResumed,
        "run.interrupting" => Body::RunInterrupting,
        _ if status.status == RunStatus::WaitingTool => Body::RunWaiting { on: WaitingOn::Tool },
        _ => Body::RunWaiting { on: WaitingOn::Approval },
    }
}

fn ended_body(ended: Ended) -> Body {
    let Ended { termination, usage, error, by, .. } = ended;
    let completed = |reason| RunEnd::Completed {
        reason,
        code: termination.code.clone(),
        detail: termination.detail.clone(),
    };
    let failed = |blocked| {
        let (code, message) = error.as_ref().map_or_else(
            || ("UNKNOWN_ERROR".to_owned(), "the run failed".to_owned()),
            |error| (error.code.as_str().to_owned(), error.message.clone()),
        );
        RunEnd::Failed { code, message, blocked }
    };
    let end = match termination.reason {
        Reason::NaturalEnd => completed(CompletedReason::NaturalEnd),
        Reason::BehaviorRequested => completed(CompletedReason::BehaviorRequested),
        Reason::Stopped => completed(CompletedReason::Stopped),
        Reason::Blocked => failed(true),
        Reason::Error => failed(false),
        Reason::Cancelled => RunEnd::Interrupted { code: termination.code.clone(), by },
    };
    Body::RunEnded {
        end,
        usage: Usage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens },
    }
}

fn message_body(message: Message) -> Body {
    let Message { id, role, content, tool_calls, call_id, reasoning, .. } = message;
    let text = || content.as_str().unwrap_or_default().to_owned();
    match role {
        Role::User => Body::UserMessage { id, content },
        Role::Assistant => Body::AssistantMessage {
            text: text(),
            id,
            reasoning,
            calls: tool_calls.into_iter().flatten().map(requested_call).collect(),
        },
        Role::Tool => Body::ToolMessage { text: text(), id, call_id: call_id.unwrap_or_default() },
        Role::Note => Body::Note { text: text(), id, call_id },
    }
}

fn requested_call(call: ToolCall) -> RequestedCall {
    RequestedCall { call_id: call.call_id, tool: call.tool, arguments: call.arguments }
}

fn decided_body(name: &str, decided: Decided) -> Body {
    let Decided { call_id, tool, approval_id, by, reason, arguments, via: _ } = decided;
    if name == "tool.approved" {
        return Body::Approved { call_id, tool, approval_id, by, reason, arguments };
    }
    Body::Denied { call_id, tool, approval_id, by, reason }
}

fn suspended_body(suspended: Suspended) -> Body {
    let kind = match suspended.kind {
        SuspensionKind::ClientTool => Kind::ClientTool,
        SuspensionKind::External => Kind::External,
        SuspensionKind::InDoubt => Kind::InDoubt,
        SuspensionKind::ChildRun => Kind::ChildRun { run_id: suspended.child_run_id.unwrap_or_default() },
        // An approval has an event of its own.
        SuspensionKind::Question | SuspensionKind::Approval => Kind::Question,
    };
    Body::Suspended {
        call: RequestedCall {
            call_id: suspended.call_id,
            tool: suspended.tool,
            arguments: suspended.arguments,
        },
        suspension: Suspension {
            id: suspended.suspension_id,
            kind,
            question: suspended.question,
            schema: suspended.schema,
            expires_at: suspended.expires_at.map(Time::text),
        },
    }
}

/// A result is JSON text that is passed on as it is.
fn raw_json(result: &machine::json::Json) -> Box<RawValue> {
    to_raw_value(result).unwrap_or_default()
}
