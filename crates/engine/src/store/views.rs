//! What a store returns to readers: threads, runs, suspensions and pages of them.

use std::sync::Arc;

use machine::checkpoint::Checkpoint;
use machine::event::{Event, Fact, Message, OpenedSuspension};
use machine::grant::Grant;
use machine::id::{
    AgentName, CallId, GrantId, MessageId, PluginName, Principal, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::Item;
use machine::phase::Scope;
use machine::preview::preview_answer;
use machine::projection_rows::{ApprovalStatus, PublicRunStatus, Role, StateRow};
use machine::suspension::SuspensionKind;
use machine::thread::{Admission, IfBusy, ThreadState, admit};
use machine::tool::Arguments;
use machine::{Control, Timestamp};
use serde_json::Value;

use super::{StoreError, StoreFailure, Tenant};
use crate::weight::weight;

/// An event. The last event of a commit also carries the commit's checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedEvent {
    pub event: Arc<Event>,
    pub checkpoint: Option<Checkpoint>,
}

impl CommittedEvent {
    /// Approximate size in memory.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.event)
    }
}

/// One position of a log. A row that cannot be decoded takes up its own position and hides no other.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    Event(CommittedEvent),
    Unreadable(UnreadableEvent),
}

/// A stored event that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableEvent {
    pub seq: u64,
    pub checkpoint: Option<Checkpoint>,
}

impl LogEntry {
    #[must_use]
    pub fn seq(&self) -> u64 {
        match self {
            Self::Event(committed) => committed.event.seq,
            Self::Unreadable(unreadable) => unreadable.seq,
        }
    }

    #[must_use]
    pub const fn checkpoint(&self) -> Option<Checkpoint> {
        match self {
            Self::Event(committed) => committed.checkpoint,
            Self::Unreadable(unreadable) => unreadable.checkpoint,
        }
    }

    /// Approximate size in memory.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Event(committed) => committed.weight(),
            Self::Unreadable(_) => size_of::<UnreadableEvent>(),
        }
    }

    #[must_use]
    pub const fn readable(&self) -> Option<&CommittedEvent> {
        match self {
            Self::Event(committed) => Some(committed),
            Self::Unreadable(_) => None,
        }
    }

    /// The event, for a reader that requires it.
    pub fn decoded(&self) -> Result<&CommittedEvent, StoreError> {
        self.readable().ok_or_else(|| unreadable(&format!("event {}", self.seq())))
    }
}

/// Every event of a page, for a reader that requires all of them.
pub fn decoded(page: Vec<LogEntry>) -> Result<Vec<CommittedEvent>, StoreError> {
    page.into_iter()
        .map(|logged| match logged {
            LogEntry::Event(committed) => Ok(committed),
            LogEntry::Unreadable(event) => Err(unreadable(&format!("event {}", event.seq))),
        })
        .collect()
}

fn unreadable(what: &str) -> StoreError {
    StoreFailure::Corrupt(format!("{what} cannot be decoded")).into()
}

/// What a store counts for one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countable {
    Threads,
    /// Approvals, questions and calls in doubt that a person has to answer.
    PendingApprovals,
}

impl Countable {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::PendingApprovals => "pending approvals",
        }
    }
}

/// A thread as admission and lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadView {
    pub id: ThreadId,
    /// The store's internal row number of the thread.
    pub row: i64,
    /// None if there is no such thread.
    pub created_at: Option<Timestamp>,
    /// None if it cannot be decoded.
    pub metadata: Option<Value>,
    /// The last message. A run begins after it unless the run names another message.
    pub head: Option<MessageId>,
    /// The thread's unended runs.
    pub state: ThreadState,
    /// Who granted every tool of the thread.
    pub auto_approved_by: Option<Principal>,
    /// Tools that have an unrevoked grant, by name.
    pub approved_tools: Vec<ToolName>,
}

impl ThreadView {
    #[must_use]
    pub const fn absent(id: ThreadId) -> Self {
        Self {
            id,
            row: 0,
            created_at: None,
            metadata: Some(Value::Null),
            head: None,
            state: ThreadState::Free,
            auto_approved_by: None,
            approved_tools: Vec::new(),
        }
    }

    /// Checks that the thread is still the one that was seen, or is still absent. [`StoreError::NotFound`] if it is
    /// gone, [`StoreError::Stale`] if another thread has its id. A row number may be reused, but not by a thread with
    /// the same creation time.
    pub fn check_same(&self, seen: &Self) -> Result<(), StoreError> {
        match (seen.created_at, self.created_at) {
            (Some(_), None) => Err(StoreError::NotFound),
            (before, now) if before == now && self.row == seen.row => Ok(()),
            (_, _) => Err(StoreError::Stale),
        }
    }

    /// How a run is admitted to this thread. The caller has checked that it is the thread that was seen.
    /// [`StoreError::Busy`] or [`StoreError::Stale`] if the run is not admitted.
    pub fn admit(&self, seen: &Self, if_busy: IfBusy, lease: bool) -> Result<Admission, StoreError> {
        // A run that starts in the commit that creates it begins after the last message that the caller saw.
        if lease && (self.state != ThreadState::Free || self.head != seen.head) {
            return Err(StoreError::Stale);
        }
        match admit(&self.state, if_busy) {
            Admission::Refuse(busy) => Err(StoreError::Busy(busy)),
            admission @ (Admission::Hold | Admission::Enqueue | Admission::Supersede) => Ok(admission),
        }
    }
}

/// The position of a message in the logs of its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePosition {
    pub run: RunId,
    pub seq: u64,
    pub role: Role,
}

/// The order of a list of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageOrder {
    /// As they joined the thread.
    #[default]
    OldestFirst,
    NewestFirst,
}

/// A message of a thread as lists show it. Texts are stored once: those it refers to are in the log of its run.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageView {
    pub id: MessageId,
    pub run: RunId,
    /// Sequence number of the event that added it to the thread.
    pub seq: u64,
    pub role: Role,
    /// None if the event cannot be decoded.
    pub said: Option<TimedMessage>,
}

/// A message as its event has it, with the event's time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedMessage {
    pub at: Timestamp,
    pub message: Message,
}

impl TimedMessage {
    /// None if the event adds no message.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        let Fact::MessageAdded(message) = &event.fact else { return None };
        Some(Self { at: event.at, message: message.clone() })
    }
}

/// One entry of plugin state, for a reader without a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct StateView {
    pub plugin: PluginName,
    pub scope: Scope,
    pub key: String,
    /// None if it cannot be decoded.
    pub value: Option<Arc<Value>>,
}

impl StateView {
    /// The row, for a worker, which requires the value.
    pub fn decoded(self) -> Result<StateRow, StoreError> {
        let Self { plugin, scope, key, value } = self;
        let value = value.ok_or_else(|| unreadable(&format!("what plugin {plugin} keeps under {key}")))?;
        Ok(StateRow { plugin, scope, key, value })
    }
}

/// A run as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    pub id: RunId,
    pub thread: ThreadId,
    pub agent: AgentName,
    pub status: PublicRunStatus,
    /// The last event's sequence number.
    pub seq: u64,
    /// None if it cannot be decoded.
    pub control: Option<Control>,
    /// An interrupt was accepted, whether or not the run has processed it.
    pub interrupt_accepted: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

impl RunView {
    /// The state, for a caller that requires it.
    pub fn decoded(&self) -> Result<&Control, StoreError> {
        self.control.as_ref().ok_or_else(|| unreadable(&format!("the state of run {}", self.id)))
    }

    /// An accepted interrupt shows at once, even if the run has not processed it.
    #[must_use]
    pub const fn shown_status(&self) -> PublicRunStatus {
        self.status.with_interrupt(self.interrupt_accepted)
    }
}

/// A suspension with everything an approver needs to see.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspensionView {
    pub tenant: Tenant,
    pub id: SuspensionId,
    pub run: RunId,
    pub thread: ThreadId,
    pub agent: AgentName,
    pub call: CallId,
    /// 0 if the event that opened it cannot be decoded.
    pub step: u32,
    pub kind: SuspensionKind,
    /// Status, with who, when and why in the fields below: from the log, or as the accepted answer says.
    pub status: ApprovalStatus,
    /// An answer was accepted that the run has not processed yet. No further decision is possible.
    pub answered: bool,
    /// The arguments that will run instead of those shown, if an accepted and still unprocessed answer edits them.
    pub edited: Option<Arguments>,
    /// None if the event that opened it cannot be decoded.
    pub opened: Option<Arc<OpenedSuspension>>,
    /// It is answered, but the answer cannot be decoded.
    pub answer_is_unreadable: bool,
    /// Sequence number of the event that opened it.
    pub opened_seq: u64,
    /// Sequence number of the event that closed it, which contains the full decision.
    pub closed_seq: Option<u64>,
    pub created_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<Principal>,
    pub reason: Option<String>,
    pub note: Option<String>,
    /// From the run that a person started down to the run that holds the call.
    pub path: Vec<PathEntry>,
}

impl SuspensionView {
    /// The view to show while the run has not processed the accepted item that answers it.
    #[must_use]
    pub fn answered_by(self, item: &Item) -> Self {
        let preview = self.opened.as_ref().and_then(|opened| preview_answer(opened, item));
        let Some(preview) = preview else { return Self { answered: true, ..self } };
        Self {
            status: preview.status,
            answered: true,
            edited: preview.edited,
            decided_at: preview.at,
            decided_by: Some(preview.by),
            reason: preview.reason,
            note: preview.note,
            ..self
        }
    }

    /// The view to show while the run has not processed an accepted item that cannot be decoded.
    #[must_use]
    pub fn answered_unreadably(self) -> Self {
        Self { answered: true, answer_is_unreadable: true, ..self }
    }

    /// Some part of it cannot be decoded.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.opened.is_none() || self.answer_is_unreadable
    }

    /// What was asked, for a caller that requires it.
    pub fn decoded(&self) -> Result<&Arc<OpenedSuspension>, StoreError> {
        self.opened.as_ref().ok_or_else(|| unreadable(&format!("the event that opened {}", self.id)))
    }

    /// Whether the path to the held call leads through the run.
    #[must_use]
    pub fn passes(&self, run: &RunId) -> bool {
        self.path.iter().any(|entry| entry.run == *run)
    }

    /// Sequence number of the last event that changed it.
    #[must_use]
    pub fn changed_seq(&self) -> u64 {
        self.closed_seq.unwrap_or(self.opened_seq)
    }

    /// The exact arguments that will run; None if nothing is left to run.
    #[must_use]
    pub fn arguments(&self) -> Option<&Value> {
        self.opened.as_ref()?.shown_arguments()
    }
}

/// One run on the path to a held call, with its call that leads to the next run. In the last entry it is the held call
/// itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEntry {
    pub run: RunId,
    pub thread: ThreadId,
    pub agent: AgentName,
    pub call: CallId,
}

/// Selects runs. Fields that are not set match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Compared with the status that is shown ([`RunView::shown_status`]).
    pub status: Option<PublicRunStatus>,
    pub thread: Option<ThreadId>,
    pub agent: Option<AgentName>,
}

/// Selects suspensions; by default the pending ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    /// The suspensions of this run.
    pub run: Option<RunId>,
    /// With `run`: also the suspensions of every run that it delegated to, directly or through others.
    pub descendants: bool,
    /// The suspensions whose path leads through a run of this thread.
    pub thread: Option<ThreadId>,
    /// Only suspensions that an event of `run` after this one opened or closed, and those with an unprocessed answer.
    /// Has no effect if `run` is not set.
    pub changed_after: u64,
}

impl Default for ApprovalFilter {
    fn default() -> Self {
        Self {
            status: Some(ApprovalStatus::Pending),
            run: None,
            descendants: false,
            thread: None,
            changed_after: 0,
        }
    }
}

impl ApprovalFilter {
    /// The pending suspensions of one run.
    #[must_use]
    pub fn for_run(run: &RunId) -> Self {
        Self { run: Some(run.clone()), ..Self::default() }
    }

    /// Whether the suspension matches. An answered one is not pending, whatever its answer says.
    #[must_use]
    pub fn matches(&self, view: &SuspensionView) -> bool {
        let is = |status| view.status == status && !(view.answered && status == ApprovalStatus::Pending);
        self.status.is_none_or(is)
            && self.run.as_ref().is_none_or(|run| view.run == *run || (self.descendants && view.passes(run)))
            && self.thread.as_ref().is_none_or(|id| view.path.iter().any(|entry| entry.thread == *id))
    }

    /// Suspensions of one run, in any status, that changed since this event.
    #[must_use]
    pub fn changed(run: &RunId, after: u64) -> Self {
        Self { status: None, changed_after: after, ..Self::for_run(run) }
    }
}

/// A new grant for every tool of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoApproval {
    pub id: GrantId,
    pub by: Principal,
}

/// Maximum number of grants that are read for one call. Further ones are ignored, so a call that needs them is held.
pub const GRANTS_READ_MAX: usize = 100;

/// A grant as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantView {
    pub grant: Grant,
    /// Its reasons cannot be decoded: it shows none, and lifts none.
    pub is_unreadable: bool,
    pub thread: ThreadId,
    /// When it was granted. For one from before the store recorded this, the creation time of its thread.
    pub since: Timestamp,
}

/// Selects grants. Fields that are not set match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantFilter {
    /// The name of the giver: of the person, or of the key that acted for them.
    pub by: Option<Principal>,
}

/// Selects a part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The `next` of the previous page.
    pub cursor: Option<String>,
    pub limit: usize,
}

impl Page {
    pub const LIMIT_MAX: usize = 1_000;
}

impl Default for Page {
    fn default() -> Self {
        Self { cursor: None, limit: 100 }
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// None on the last page.
    pub next: Option<String>,
}
