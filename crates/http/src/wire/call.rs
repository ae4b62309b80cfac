//! The calls of a run, folded from its events: what each is doing, and how it ended.

use std::collections::BTreeMap;

use engine::store::{CommittedEvent, LogEntry};
use machine::Timestamp;
use machine::event::{CallChange, Event, Fact, OpenedSuspension, Settlement};
use machine::id::{CallId, Digest, RunId, idempotency_key};
use machine::json::Json;
use machine::status::CallStatus as Status;
use machine::suspension::SuspensionKind as Kind;
use machine::tool::Arguments;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{CallStatus, ResumeMode, SuspensionKind};
use super::payload::CallError;
use super::time::Time;
use super::{is_false, via_text};

/// A tool call of a run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Call {
    pub call_id: String,
    pub tool: String,
    pub step: u32,
    pub status: CallStatus,
    /// The final arguments, with which the call runs or ran.
    #[schema(value_type = Value)]
    pub arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<CallError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub denied: Option<Denied>,
    /// True if the call failed or was cancelled but may have taken effect. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome_unknown: Option<bool>,
    /// Number of the last attempt; 0 if none has started.
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub suspension: Option<Suspension>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Denied {
    pub by: String,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    pub reason: Option<String>,
}

/// Why a call is held, and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Suspension {
    pub id: String,
    pub kind: SuspensionKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub schema: Option<Value>,
    pub resume_mode: ResumeMode,
    /// The approval with which a person answers. Absent if no person has to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub approval_id: Option<String>,
    /// Only for a call in doubt: the idempotency key that its attempts sent. A retry sends the same key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<String>,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Time>,
}

impl Suspension {
    fn from_opened(opened: &OpenedSuspension, at: Timestamp, idempotency_key: Option<String>) -> Self {
        let kind = opened.held.kind();
        let id = opened.suspension_id.as_str();
        Self {
            id: id.into(),
            kind: kind.into(),
            question: opened.question.clone(),
            schema: opened.schema.as_ref().map(|schema| (**schema).clone()),
            resume_mode: opened.mode.into(),
            approval_id: kind.needs_person().then(|| id.into()),
            idempotency_key,
            created_at: at.into(),
            expires_at: opened.expiry.map(|expiry| expiry.at.into()),
        }
    }
}

/// Response of `GET /v1/runs/{id}/calls`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Calls {
    pub calls: Vec<Call>,
    /// True if an event of the run cannot be decoded, so that a call may be missing or shown in an outdated state.
    /// Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

/// The decision with which a call resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResumeDecision {
    pub by: String,
    /// The key that acted for `by`. Absent if `by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    pub mode: ResumeMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub decision_id: Option<String>,
    pub decided_at: Time,
}

/// Takes every event of a run in order, from the first.
#[derive(Clone, Debug, Default)]
pub struct CallFold {
    run: Option<RunId>,
    /// In the order in which the model asked for them.
    calls: Vec<Call>,
    entries: BTreeMap<CallId, CallEntry>,
    resuming: BTreeMap<String, ResumeDecision>,
    /// An event could not be decoded.
    unreadable: bool,
}

/// The index of a call in the list, and the digest of the arguments that it runs with.
#[derive(Clone, Copy, Debug)]
struct CallEntry {
    index: usize,
    arguments: Digest,
}

/// An empty [`CallFold`].
#[must_use]
pub fn call_fold() -> CallFold {
    CallFold::default()
}

impl CallFold {
    pub fn add(&mut self, committed: &CommittedEvent) {
        self.apply(&committed.event);
    }

    /// Like `add`, for an entry of the log.
    pub fn add_logged(&mut self, logged: &LogEntry) {
        match logged {
            LogEntry::Event(committed) => self.add(committed),
            LogEntry::Unreadable(_) => self.unreadable = true,
        }
    }

    /// Whether every event could be decoded.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        !self.unreadable
    }

    #[must_use]
    pub fn finish(self) -> Calls {
        Calls { calls: self.calls, unreadable: self.unreadable }
    }

    /// The calls and, for those that are resuming, the decision that they resume with.
    #[must_use]
    pub fn finish_with_decisions(self) -> (Vec<Call>, BTreeMap<String, ResumeDecision>) {
        (self.calls, self.resuming)
    }

    fn apply(&mut self, event: &Event) {
        if let Fact::RunQueued(order) = &event.fact {
            self.run = Some(order.run_id.clone());
        }
        let (Some(id), Some(change)) = (event.fact.call_id(), event.fact.call_change()) else { return };
        match change {
            CallChange::Requested { tool, arguments } => {
                self.begin(id, tool.as_str(), event.step.unwrap_or_default(), arguments);
            }
            CallChange::Suspended(opened) => self.suspend(opened, event.at),
            CallChange::Resumed => {
                self.set_arguments(id, event.fact.arguments().map(|(_, arguments)| arguments));
                self.set_status(id, change.status(), |_| {});
                if let Some(decision) = resume_decision(event) {
                    self.resuming.insert(id.as_str().into(), decision);
                }
            }
            CallChange::Started { attempt } => {
                self.set_status(id, change.status(), |call| call.attempts = attempt);
            }
            CallChange::Settled(settlement) => {
                self.set_status(id, change.status(), |call| settle(call, settlement));
            }
        }
    }

    fn begin(&mut self, id: &CallId, tool: &str, step: u32, arguments: &Arguments) {
        self.entries.insert(id.clone(), CallEntry { index: self.calls.len(), arguments: arguments.digest() });
        self.calls.push(Call {
            call_id: id.as_str().into(),
            tool: tool.into(),
            step,
            status: Status::New.into(),
            arguments: super::arguments(arguments),
            result: None,
            error: None,
            denied: None,
            outcome_unknown: None,
            attempts: 0,
            suspension: None,
        });
    }

    fn suspend(&mut self, opened: &OpenedSuspension, at: Timestamp) {
        self.set_arguments(&opened.call_id, opened.arguments.as_ref());
        let in_doubt = opened.held.kind() == Kind::InDoubt;
        let key = if in_doubt { self.sent_key(&opened.call_id) } else { None };
        let suspension = Suspension::from_opened(opened, at, key);
        self.set_status(&opened.call_id, Status::Suspended, |call| call.suspension = Some(suspension));
    }

    /// The idempotency key that the attempts of a call send.
    fn sent_key(&self, id: &CallId) -> Option<String> {
        Some(idempotency_key(self.run.as_ref()?, id, &self.entries.get(id)?.arguments))
    }

    fn set_arguments(&mut self, id: &CallId, arguments: Option<&Arguments>) {
        if let Some(arguments) = arguments
            && let Some(entry) = self.entries.get_mut(id)
            && let Some(call) = self.calls.get_mut(entry.index)
        {
            entry.arguments = arguments.digest();
            call.arguments = super::arguments(arguments);
        }
    }

    /// Clears the suspension, because a call that continues is not held, and the decision, because it has been used.
    fn set_status(&mut self, id: &CallId, status: Status, change: impl FnOnce(&mut Call)) {
        self.resuming.remove(id.as_str());
        if let Some(call) = self.entries.get(id).and_then(|entry| self.calls.get_mut(entry.index)) {
            call.status = status.into();
            call.suspension = None;
            change(call);
        }
    }
}

/// The decision that a call resumes with. A call whose approval is void resumes without one: its tool is no longer the
/// one that was shown, so the call goes through the gate and is held again.
fn resume_decision(event: &Event) -> Option<ResumeDecision> {
    let (by, mode) = if let Fact::ToolApproved { by, .. } = &event.fact {
        (by, ResumeMode::ReplayToolCall)
    } else if let Fact::ToolResumed { by, mode, .. } = &event.fact {
        (by, (*mode).into())
    } else {
        return None;
    };
    Some(ResumeDecision {
        by: by.name().into(),
        via: via_text(by),
        mode,
        decision_id: event.fact.decision_id().map(|id| id.as_str().into()),
        decided_at: event.at.into(),
    })
}

fn settle(call: &mut Call, settlement: Settlement<'_>) {
    match settlement {
        Settlement::Succeeded { result, .. } => call.result = Some(result.clone()),
        Settlement::Failed { error, outcome_unknown } => {
            call.error = Some(CallError::from_stored(error));
            call.outcome_unknown = outcome_unknown.then_some(true);
        }
        Settlement::Denied { by, reason } => {
            let (by, via) = (by.name().into(), via_text(by));
            call.denied = Some(Denied { by, via, reason: reason.map(String::from) });
        }
        Settlement::Cancelled { outcome_unknown, .. } => {
            call.outcome_unknown = outcome_unknown.then_some(true);
        }
    }
}
