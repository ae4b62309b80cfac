//! Rows that a store keeps beside the log: messages, calls and suspensions, derived from the events of a commit.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::{self, AuditEntry, ClosedCall};
use crate::call::Call;
use crate::control::{Control, Stage};
use crate::event::{Closing, Event, Fact, Message, OpenedSuspension};
use crate::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use crate::id::{CallId, Digest, MessageId, PluginName, Principal, SuspensionId, ToolName, grant_id};
use crate::inbox::{RunLifecycle, Ticket};
use crate::named_enum::named_enum;
use crate::phase::Scope;
use crate::status::{RunStatus, WaitingOn};
use crate::suspension::SuspensionKind;
use crate::termination::Termination;
use crate::thread::{FrontState, RunActivity};
use crate::time::Timestamp;
use crate::undecodable::HeldCall;
use crate::wanted;

/// The rows that one commit writes. Texts and values stay in the events; a row refers to the event that has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectionRows {
    pub messages: Vec<MessageRow>,
    /// Ids that must be new: no earlier call of the thread may have used them.
    pub calls: Vec<CallId>,
    pub opened: Vec<OpenedRow>,
    pub closed: Vec<ClosedRow>,
    /// Approvals that were given and then voided. Their rows change once more.
    pub voided: Vec<ClosedRow>,
    /// What approvals grant to later calls of the thread.
    pub grants: Vec<GrantRow>,
    pub state: Vec<StateRow>,
    /// What the commit adds to the tenant's audit record, without the ids of its run and thread.
    pub audit: Vec<AuditEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub id: MessageId,
    pub seq: u64,
    pub role: Role,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    Tool,
    Note,
}

/// A suspension as it opens. The details that a person needs to see are in the event `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRow {
    pub id: SuspensionId,
    pub call: CallId,
    pub kind: SuspensionKind,
    pub seq: u64,
    pub at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Digest of the arguments that will run, if any are left to run. An early decision is valid only for these.
    pub arguments: Option<Digest>,
    pub tool: ToolName,
    /// Digest of the tool as the approver sees it. None if the suspension is not an approval.
    pub definition: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedRow {
    pub id: SuspensionId,
    pub seq: u64,
    pub at: Timestamp,
    pub status: ApprovalStatus,
    pub by: Principal,
    pub reason: Option<String>,
    pub note: Option<String>,
    pub inbox_position: InboxPosition,
}

/// How much of its inbox the run had processed when it closed a suspension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxPosition {
    /// Number of rows already processed, counted from the first row that the commit consumes.
    pub count: usize,
    /// The row that closed it, if one did.
    pub ticket: Option<Ticket>,
}

impl InboxPosition {
    /// Whether the suspension was closed while an accepted answer is still unprocessed. A row that arrived before that
    /// answer may close it.
    #[must_use]
    pub fn overrides_answer(self, answered_by: Ticket, consumed: &[Ticket]) -> bool {
        let processed = consumed.iter().take(self.count).any(|ticket| *ticket == answered_by);
        !processed && self.ticket.is_none_or(|closing| closing > answered_by)
    }
}

named_enum! {
    /// Status of a suspension that a person answers.
    pub enum ApprovalStatus {
        Pending = "pending",
        Approved = "approved",
        Rejected = "rejected",
        Expired = "expired",
        Answered = "answered",
    }
}

/// What an approval with `apply_to_future` grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    pub grant: Grant,
    pub since: Timestamp,
}

/// What is known of the run as it was at the beginning of a commit.
#[derive(Clone, Copy)]
enum Before<'b> {
    /// It is the run's first commit.
    Nothing,
    State(&'b Control),
    /// The state cannot be decoded.
    Columns(&'b [HeldCall]),
}

impl<'b> Before<'b> {
    const fn state(self) -> Option<&'b Control> {
        match self {
            Self::State(control) => Some(control),
            Self::Nothing | Self::Columns(_) => None,
        }
    }
}

/// A value that a plugin stores under a key.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRow {
    pub plugin: PluginName,
    pub scope: Scope,
    pub key: String,
    pub value: Arc<Value>,
}

impl ProjectionRows {
    /// Whether this commit changes any suspension row.
    #[must_use]
    pub const fn changes_suspensions(&self) -> bool {
        !(self.opened.is_empty() && self.closed.is_empty() && self.voided.is_empty())
    }

    /// Adds the rows for the events of one input. `before` is the state at the beginning of the commit.
    pub fn add_events(&mut self, before: Option<&Control>, events: &[Event], inbox_position: InboxPosition) {
        self.add(before.map_or(Before::Nothing, Before::State), events, inbox_position);
    }

    /// Adds the rows for the last events of a run whose state cannot be decoded. These calls are held.
    pub(crate) fn add_last_events(
        &mut self,
        held: &[HeldCall],
        events: &[Event],
        inbox_position: InboxPosition,
    ) {
        self.add(Before::Columns(held), events, inbox_position);
    }

    fn add(&mut self, before: Before<'_>, events: &[Event], inbox_position: InboxPosition) {
        for event in events {
            self.audit.extend(audit::run_entry(event));
            if let Fact::MessageAdded(message) = &event.fact {
                let (id, role) = (message.id().clone(), role(message));
                self.messages.push(MessageRow { id, seq: event.seq, role, at: event.at });
            }
            if let Fact::ToolRequested { call_id, .. } = &event.fact {
                self.calls.push(call_id.clone());
            }
            if let Some(opened) = event.fact.opened_suspension() {
                self.open(event, opened);
            }
            if let Fact::StateChanged { plugin, scope, key, value } = &event.fact {
                let (plugin, scope, key) = (plugin.clone(), *scope, key.clone());
                self.state.push(StateRow { plugin, scope, key, value: value.clone() });
            }
            if let Fact::ToolApproved { call_id, approval_id, by, apply_to_future: true, covers, .. } =
                &event.fact
                && let Some(covers) = self.granted(before.state(), call_id, approval_id, covers)
            {
                let grant = Grant { id: grant_id(approval_id), by: by.clone(), covers };
                self.audit.push(audit::grant_entry(event, &grant));
                self.grants.push(GrantRow { grant, since: event.at });
            }
            if let Some(closing) = event.fact.closes_suspension() {
                let status = self.status_of(before, &closing);
                let call = self.closed_call(before, event, closing.id);
                self.audit.extend(audit::closing_entry(event, &closing, status, call));
                let row = ClosedRow {
                    id: closing.id.clone(),
                    seq: event.seq,
                    at: event.at,
                    status,
                    by: closing.by.cloned().unwrap_or_else(Principal::system),
                    reason: closing.reason.map(String::from),
                    note: closing.note.map(String::from),
                    inbox_position,
                };
                let void =
                    matches!(event.fact, Fact::ApprovalVoided { .. }) && !self.is_open(before, &row.id);
                if void { self.voided.push(row) } else { self.closed.push(row) }
            }
        }
    }

    fn is_open(&self, before: Before<'_>, id: &SuspensionId) -> bool {
        self.kind_of(before, id).is_some() && !self.closed.iter().any(|closed| closed.id == *id)
    }

    /// The kind of a suspension that was open before the commit or that the commit opens.
    fn kind_of(&self, before: Before<'_>, id: &SuspensionId) -> Option<SuspensionKind> {
        let held = match before {
            Before::Nothing => None,
            Before::State(control) => {
                let mut open = control.calls.iter().filter_map(Call::suspension);
                open.find(|open| open.id == *id).map(|open| open.held.kind())
            }
            Before::Columns(held) => held.iter().find(|held| held.suspension == *id).map(|held| held.kind),
        };
        let opened = || self.opened.iter().find(|opened| opened.id == *id).map(|opened| opened.kind);
        held.or_else(opened)
    }

    fn closed_call(&self, before: Before<'_>, event: &Event, id: &SuspensionId) -> ClosedCall {
        let kind = self.kind_of(before, id);
        if let Some(opened) = self.opened.iter().find(|opened| opened.id == *id) {
            return ClosedCall { tool: Some(opened.tool.clone()), kind, arguments: opened.arguments };
        }
        let call = before.state().zip(event.fact.call_id()).and_then(|(control, id)| control.call(id));
        ClosedCall {
            tool: call.map(|call| call.tool.clone()),
            kind,
            arguments: call.map(|call| call.arguments),
        }
    }

    /// An approval that is not given is a rejection, even if it was for repeating a call in doubt, which is given up.
    fn status_of(&self, before: Before<'_>, closing: &Closing<'_>) -> ApprovalStatus {
        match (closing.status, self.kind_of(before, closing.id)) {
            (ApprovalStatus::Answered, Some(SuspensionKind::Approval)) => ApprovalStatus::Rejected,
            (status, _) => status,
        }
    }

    /// What an approval covers, for the tool as it was shown, either in an earlier commit or in this one.
    fn granted(
        &self,
        before: Option<&Control>,
        call: &CallId,
        approval: &SuspensionId,
        reasons: &[HoldReason],
    ) -> Option<GrantCoverage> {
        let control = before.filter(|_| !reasons.is_empty())?;
        let before = |call: &Call| Some((call.tool.clone(), call.suspension()?.held.definition()?));
        let (tool, definition) = match self.opened.iter().find(|opened| opened.id == *approval) {
            Some(opened) => (opened.tool.clone(), opened.definition?),
            None => control.call(call).and_then(before)?,
        };
        let (agent, reasons) = (Some(control.agent.clone()), reasons.to_vec());
        Some(GrantCoverage::Tool(ToolGrant { tool, agent, definition, reasons }))
    }

    fn open(&mut self, event: &Event, opened: &OpenedSuspension) {
        self.opened.push(OpenedRow {
            id: opened.suspension_id.clone(),
            call: opened.call_id.clone(),
            kind: opened.held.kind(),
            seq: event.seq,
            at: event.at,
            expires_at: opened.expiry.map(|expiry| expiry.at),
            arguments: opened.arguments.as_ref().map(crate::tool::Arguments::digest),
            tool: opened.tool.clone(),
            definition: opened.held.definition(),
        });
    }
}

const fn role(message: &Message) -> Role {
    match message {
        Message::User { .. } => Role::User,
        Message::Assistant { .. } => Role::Assistant,
        Message::Tool { .. } => Role::Tool,
        Message::Note { .. }
        | Message::Correction { .. }
        | Message::CallsDropped { .. }
        | Message::Interruption { .. } => Role::Note,
    }
}

named_enum! {
    /// The status of a run as clients see it.
    pub enum PublicRunStatus {
        Queued = "queued",
        Running = "running",
        WaitingApproval = "waiting_approval",
        WaitingTool = "waiting_tool",
        Interrupting = "interrupting",
        Completed = "completed",
        Failed = "failed",
        Interrupted = "interrupted",
    }
}

impl PublicRunStatus {
    #[must_use]
    pub const fn from_status(status: &RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Running,
            RunStatus::Waiting(WaitingOn::Person) => Self::WaitingApproval,
            RunStatus::Waiting(WaitingOn::Tool) => Self::WaitingTool,
            RunStatus::Interrupting => Self::Interrupting,
            RunStatus::Done(
                Termination::NaturalEnd | Termination::BehaviorRequested | Termination::Stopped(_),
            ) => Self::Completed,
            RunStatus::Done(Termination::Blocked(_) | Termination::Error(_)) => Self::Failed,
            RunStatus::Done(Termination::Cancelled(_)) => Self::Interrupted,
        }
    }

    /// An accepted interrupt is visible at once, even if the run has not processed it yet.
    #[must_use]
    pub const fn with_interrupt(self, accepted: bool) -> Self {
        if accepted && !self.ended() { Self::Interrupting } else { self }
    }

    #[must_use]
    pub const fn ended(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::WaitingApproval | Self::WaitingTool | Self::Interrupting => {
                false
            }
            Self::Completed | Self::Failed | Self::Interrupted => true,
        }
    }

    /// What a new message finds when this run is at the front of its thread.
    #[must_use]
    pub const fn front_state(self) -> FrontState {
        match self {
            Self::Queued => FrontState::Queued,
            Self::WaitingApproval | Self::WaitingTool => FrontState::Waiting,
            Self::Running | Self::Interrupting | Self::Completed | Self::Failed | Self::Interrupted => {
                FrontState::Executing
            }
        }
    }
}

/// The columns of a run that are derived from its control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSummary {
    pub status: PublicRunStatus,
    /// When the run must be woken even if no input arrives.
    pub wake_at: Option<Timestamp>,
    /// A call is held because it may or may not have taken effect.
    pub in_doubt: bool,
    /// The end is decided: no more decisions are accepted.
    pub ending: bool,
}

impl RunSummary {
    #[must_use]
    pub fn from_control(control: &Control) -> Self {
        let in_doubt = control
            .calls
            .iter()
            .any(|call| call.suspension().is_some_and(|open| open.held.kind() == SuspensionKind::InDoubt));
        Self {
            status: PublicRunStatus::from_status(&control.status),
            wake_at: wanted::next_deadline(control).map(|deadline| deadline.at),
            in_doubt,
            ending: matches!(control.stage, Stage::Ending(_)),
        }
    }

    #[must_use]
    pub const fn activity(self) -> RunActivity {
        RunActivity { state: self.status.front_state(), in_doubt: self.in_doubt }
    }

    /// The lifecycle that a submitted item finds. An item that ends the run may be accepted but not processed yet.
    #[must_use]
    pub const fn lifecycle(self, end_is_accepted: bool) -> RunLifecycle {
        if self.status.ended() {
            RunLifecycle::Ended
        } else if self.ending || end_is_accepted {
            RunLifecycle::Ending
        } else {
            RunLifecycle::Open
        }
    }
}
