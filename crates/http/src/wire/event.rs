//! A stored event as it is sent: the envelope, and a payload for every fact.

use engine::store::{CommittedEvent, UnreadableEvent};
use machine::event::{self, EVENT_VERSION, Event, Fact, InterruptCause, OpenedSuspension, VoidReason};
use machine::id::{CallId, Principal, RunId, SuspensionId, ThreadId};
use machine::phase::{Action, Phase};
use machine::projection_rows::PublicRunStatus;
use machine::status::{RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode};
use machine::termination::Termination as DomainTermination;
use machine::tool::Arguments;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::enums::Checkpoint;
use super::message::{HydratedBody, Message};
use super::payload::{
    Added, Answered, ApprovalRequested, ApprovalVoided, CallError, Cancelled, Changed, Child, Decided, Ended,
    Ending, Failed, Lost, Patch, PatchOp, Payload, Recovered, Requested, Resumed, Retrying, Started, Status,
    Step, Succeeded, Suspended, Unreadable,
};
use super::run::{Pending, RunError, Termination, Usage};
use super::state;
use super::time::Time;
use super::{is_false, principal_parts, via_text};

/// A stored event. Lists and streams use the same form.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Envelope {
    /// Sequence number within the run: starts at 1 and has no gaps.
    pub seq: u64,
    #[serde(rename = "type")]
    pub name: &'static str,
    pub thread_id: String,
    pub run_id: String,
    /// Step number; null outside a step.
    pub step: Option<u32>,
    /// When the event happened; null if the event cannot be decoded.
    pub ts: Option<Time>,
    pub v: u16,
    #[schema(value_type = Object)]
    pub payload: Payload,
    /// The name of the checkpoint. Only on the last event of a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub checkpoint: Option<Checkpoint>,
    /// True if the stored event cannot be decoded. Then `type` is `event.unreadable` and `payload` is empty. Absent
    /// otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

impl Envelope {
    /// `body` is what other events contain of the message that this event adds, of its call, or of the end of the run.
    /// A [`super::hydrate::EventHydrator`] collects it.
    #[must_use]
    pub fn new(thread: &ThreadId, run: &RunId, committed: &CommittedEvent, body: HydratedBody) -> Self {
        let event = &*committed.event;
        Self {
            seq: event.seq,
            name: name(&event.fact),
            thread_id: thread.as_str().into(),
            run_id: run.as_str().into(),
            step: event.step,
            ts: Some(event.at.into()),
            v: EVENT_VERSION,
            payload: payload(run, event, body),
            checkpoint: committed.checkpoint.map(Into::into),
            unreadable: false,
        }
    }

    /// The envelope for an event that cannot be decoded.
    #[must_use]
    pub fn unreadable(thread: &ThreadId, run: &RunId, event: &UnreadableEvent) -> Self {
        Self {
            seq: event.seq,
            name: "event.unreadable",
            thread_id: thread.as_str().into(),
            run_id: run.as_str().into(),
            step: None,
            ts: None,
            v: EVENT_VERSION,
            payload: Payload::Unreadable(Unreadable {}),
            checkpoint: event.checkpoint.map(Into::into),
            unreadable: true,
        }
    }

    /// Whether it is the last event of its run.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self.payload, Payload::Ended(_))
    }
}

/// The event's name on the wire. The stored end of a run has three names there.
#[must_use]
pub const fn name(fact: &Fact) -> &'static str {
    let Fact::RunEnded { termination, .. } = fact else { return fact.name() };
    match termination {
        DomainTermination::NaturalEnd
        | DomainTermination::BehaviorRequested
        | DomainTermination::Stopped(_) => "run.completed",
        DomainTermination::Blocked(_) | DomainTermination::Error(_) => "run.failed",
        DomainTermination::Cancelled(_) => "run.interrupted",
    }
}

fn payload(run: &RunId, event: &Event, body: HydratedBody) -> Payload {
    match &event.fact {
        Fact::RunQueued(_) => status(PublicRunStatus::Queued),
        Fact::RunStarted { .. } | Fact::RunResumed {} => status(PublicRunStatus::Running),
        Fact::RunInterrupting { cause } => interrupting(cause),
        Fact::RunWaiting { on, pending } => waiting(*on, pending),
        Fact::RunEnding { termination } => {
            Payload::Ending(Ending { termination: Termination::from_domain(termination) })
        }
        Fact::RunEnded { termination, usage, .. } => ended(termination, *usage, body),
        Fact::RunRecovered { epoch, lost, .. } => Payload::Recovered(Recovered {
            epoch: *epoch,
            lost: lost.iter().map(Lost::from_attempt).collect(),
        }),
        Fact::StepStarted { step, message_id } | Fact::StepEnded { step, message_id } => {
            Payload::Step(Step { step: *step, message_id: message_id.as_str().into() })
        }
        Fact::MessageAdded(message) => {
            Payload::Message(Added { message: Message::from_stored(run, message, body, event.at) })
        }
        Fact::ModelRetrying { attempt, error, at, .. } => {
            Payload::Retrying(Retrying { attempt: *attempt, error: error.clone(), at: Time(*at) })
        }
        Fact::PhaseAnswered { phase, plugin, call_id, actions, failed } => {
            answered(*phase, plugin.as_str(), call_id.as_ref(), actions, failed.as_ref())
        }
        Fact::StateChanged { plugin, scope, key, value } => {
            changed(state::pointer(*scope, plugin, key), value)
        }
        Fact::ToolRequested { call_id, tool, arguments } => {
            requested(text(call_id), tool.as_str(), arguments, run, event.step)
        }
        Fact::ApprovalRequested(opened) => approval_requested(opened),
        Fact::ApprovalVoided { call_id, approval_id, reason, by, .. } => {
            voided(call_id, body.tool, approval_id, *reason, by.as_ref())
        }
        Fact::ToolApproved { call_id, approval_id, by, note, arguments, .. } => {
            decided(call_id, body.tool, approval_id, by, note.as_ref(), arguments.as_ref())
        }
        Fact::ToolDenied { call_id, approval_id, by, reason, .. } => {
            decided(call_id, body.tool, approval_id, by, reason.as_ref(), None)
        }
        Fact::ToolSuspended(opened) => suspended(opened, body),
        Fact::ToolResumed { call_id, suspension_id, mode, by, .. } => {
            resumed(call_id, body.tool, suspension_id, *mode, by)
        }
        Fact::ExecutionStarted { call_id, tool, attempt, rule, let_through_by, .. } => {
            let (let_through_by, let_through_via) = principal_parts(let_through_by.as_ref());
            let (call_id, tool, attempt, rule) = (text(call_id), tool.as_str().into(), *attempt, *rule);
            Payload::Started(Started { call_id, tool, attempt, rule, let_through_by, let_through_via })
        }
        Fact::ExecutionSucceeded { call_id, result, warning, .. } => {
            let (result, warning) = (result.clone(), warning.clone());
            Payload::Succeeded(Succeeded { call_id: text(call_id), tool: body.tool, result, warning })
        }
        Fact::ExecutionFailed { call_id, error, outcome_unknown } => {
            let (error, outcome_unknown) = (CallError::from_stored(error), outcome_unknown.then_some(true));
            Payload::Failed(Failed { call_id: text(call_id), tool: body.tool, error, outcome_unknown })
        }
        Fact::ToolCancelled { call_id, reason, text: said, outcome_unknown, .. } => {
            cancelled(call_id, body.tool, said.as_deref().unwrap_or(reason.as_str()), *outcome_unknown)
        }
        Fact::ChildStarted { call_id, run_id, .. } | Fact::ChildEnded { call_id, run_id, .. } => {
            Payload::Child(Child { call_id: text(call_id), run_id: run_id.as_str().into() })
        }
    }
}

fn text(call: &CallId) -> String {
    call.as_str().to_owned()
}

fn status(status: PublicRunStatus) -> Payload {
    Payload::Status(Status { status: status.into(), pending: None, by: None, via: None })
}

fn interrupting(cause: &InterruptCause) -> Payload {
    let (by, via) = principal_parts(interrupter(cause));
    Payload::Status(Status { status: PublicRunStatus::Interrupting.into(), pending: None, by, via })
}

/// The caller who interrupted the run, if it was a caller.
pub(super) const fn interrupter(cause: &InterruptCause) -> Option<&Principal> {
    match cause {
        InterruptCause::Person(by) => Some(by),
        InterruptCause::Superseded(_) | InterruptCause::Parent(_) => None,
    }
}

fn waiting(on: WaitingOn, pending: &[event::Pending]) -> Payload {
    let status = match on {
        WaitingOn::Person => PublicRunStatus::WaitingApproval,
        WaitingOn::Tool => PublicRunStatus::WaitingTool,
    };
    Payload::Status(Status {
        status: status.into(),
        pending: Some(pending.iter().map(Pending::from_domain).collect()),
        by: None,
        via: None,
    })
}

fn ended(how: &DomainTermination, usage: event::Usage, body: HydratedBody) -> Payload {
    let (by, via) = principal_parts(body.by.as_ref());
    Payload::Ended(Ended {
        status: PublicRunStatus::from_status(&RunStatus::Done(how.clone())).into(),
        termination: Termination::from_domain(how),
        usage: Usage::from_domain(usage),
        error: RunError::from_termination(how),
        by,
        via,
        output: body.output,
    })
}

fn answered(
    phase: Phase,
    plugin: &str,
    call: Option<&CallId>,
    actions: &[Action],
    failed: Option<&String>,
) -> Payload {
    Payload::Phase(Answered {
        phase: phase.into(),
        plugin: plugin.into(),
        call_id: call.map(text),
        actions: actions.iter().map(action).collect(),
        failed: failed.cloned(),
    })
}

/// `{"set_state": {…}}` and `"end"` become objects with their name in `type`.
fn action(action: &Action) -> Value {
    let mut fields = Map::from_iter([("type".to_owned(), Value::from(action.name()))]);
    if let Ok(Value::Object(tagged)) = serde_json::to_value(action) {
        fields.extend(tagged.into_iter().filter_map(|(_, body)| body.as_object().cloned()).flatten());
    }
    if let Action::SetArguments { arguments, .. } = action {
        fields.insert("arguments".to_owned(), super::arguments(arguments));
    }
    Value::Object(fields)
}

/// `add` sets a key whether or not it exists.
fn changed(path: String, value: &Value) -> Payload {
    Payload::State(Changed { patch: vec![Patch { op: PatchOp::Add, path, value: value.clone() }] })
}

fn requested(call_id: String, tool: &str, asked: &Arguments, run: &RunId, step: Option<u32>) -> Payload {
    Payload::Requested(Requested {
        call_id,
        tool: tool.into(),
        arguments: super::arguments(asked),
        turn_id: format!("{run}:{}", step.unwrap_or_default()),
    })
}

fn approval_requested(opened: &OpenedSuspension) -> Payload {
    Payload::ApprovalRequested(ApprovalRequested {
        call_id: text(&opened.call_id),
        tool: opened.tool.as_str().into(),
        arguments: opened.arguments.as_ref().map(super::arguments).unwrap_or_default(),
        approval_id: opened.suspension_id.as_str().into(),
        expires_at: opened.expiry.map(|expiry| expiry.at.into()),
    })
}

fn suspended(opened: &OpenedSuspension, body: HydratedBody) -> Payload {
    let (let_through_by, let_through_via) = principal_parts(opened.let_through_by.as_ref());
    let child = match &opened.held {
        Held::ChildRun { run, .. } => Some(run.as_str().into()),
        Held::Approval { .. } | Held::ClientTool | Held::External | Held::Question | Held::InDoubt { .. } => {
            None
        }
    };
    Payload::Suspended(Suspended {
        call_id: text(&opened.call_id),
        tool: opened.tool.as_str().into(),
        kind: opened.held.kind().into(),
        suspension_id: opened.suspension_id.as_str().into(),
        arguments: opened.arguments.as_ref().map(super::arguments).or(body.arguments).unwrap_or_default(),
        question: opened.question.clone(),
        schema: opened.schema.as_ref().map(|schema| (**schema).clone()),
        resume_mode: opened.mode.into(),
        expires_at: opened.expiry.map(|expiry| expiry.at.into()),
        child_run_id: child,
        rule: opened.rule,
        let_through_by,
        let_through_via,
    })
}

fn resumed(
    call: &CallId,
    tool: String,
    suspension: &SuspensionId,
    mode: ResumeMode,
    by: &Principal,
) -> Payload {
    Payload::Resumed(Resumed {
        call_id: text(call),
        tool,
        suspension_id: suspension.as_str().into(),
        mode: mode.into(),
        by: by.name().into(),
        via: via_text(by),
    })
}

fn voided(
    call: &CallId,
    tool: String,
    approval: &SuspensionId,
    reason: VoidReason,
    by: Option<&Principal>,
) -> Payload {
    let (by, via) = principal_parts(by);
    Payload::ApprovalVoided(ApprovalVoided {
        call_id: text(call),
        tool,
        approval_id: approval.as_str().into(),
        reason: reason.as_str().into(),
        by,
        via,
    })
}

/// The `reason` of a decision for which no person gave one.
const NO_REASON: &str = "no reason given";

fn decided(
    call: &CallId,
    tool: String,
    approval: &SuspensionId,
    by: &Principal,
    reason: Option<&String>,
    edited: Option<&Arguments>,
) -> Payload {
    Payload::Decided(Decided {
        call_id: text(call),
        tool,
        approval_id: approval.as_str().into(),
        by: by.name().into(),
        via: via_text(by),
        reason: reason.filter(|reason| !reason.is_empty()).map_or(NO_REASON, String::as_str).to_owned(),
        arguments: edited.map(super::arguments),
    })
}

fn cancelled(call: &CallId, tool: String, reason: &str, outcome_unknown: bool) -> Payload {
    Payload::Cancelled(Cancelled {
        call_id: text(call),
        tool,
        reason: reason.to_owned(),
        outcome_unknown: outcome_unknown.then_some(true),
    })
}
