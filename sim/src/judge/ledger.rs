//! The simulator's own record of one run, built only from the events, without the machine's decisions and fold.

use std::sync::Arc;

use machine::Timestamp;
use machine::event::{Event, Parent, RunRequest, Usage};
use machine::id::{AgentName, CallId, Digest, Principal, RunId, SuspensionId, ToolName};
use machine::inbox::{RunLifecycle, SuspensionRow};
use machine::policy::{Continuation, Execution, Policy};
use machine::revision::Revision;
use machine::rules::Asker;
use machine::status::{CallStatus, WaitingOn};
use machine::suspension::{Expiry, ResumeMode, SuspensionKind};
use machine::termination::Termination;
use machine::tool::{Arguments, EffectClass};

use crate::judge::outputs::OutputBook;

/// Numbers what the store accepts from outside, in order of acceptance.
pub type Ticket = u64;

#[derive(Clone, Debug)]
pub struct RunLedger {
    pub run: RunId,
    pub agent: AgentName,
    pub policy: Policy,
    pub revision: Arc<Revision>,
    pub parent: Option<Parent>,
    pub loosened_by: Option<Principal>,
    pub seq: u64,
    pub at: Timestamp,
    pub status: Announced,
    pub ending: Option<Termination>,
    pub step: u32,
    pub step_open: bool,
    /// The open step's model answer has not arrived.
    pub inferring: bool,
    pub model_attempt: u32,
    /// An empty answer of the open step was retried.
    pub empty_retried: bool,
    /// Every call of the run in the order of the requests, including ended ones.
    pub calls: Vec<CallLedger>,
    pub usage: Usage,
    pub active_ms: u64,
    active_since: Timestamp,
    /// A late result was added after the model's last answer.
    pub untold_news: bool,
    /// What the store had accepted when a worker took over, and is still unprocessed.
    pub unheard_at_takeover: Vec<Ticket>,
    pub last_text: String,
    pub output: OutputBook,
}

/// The status that the log last announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    Queued,
    Running,
    Waiting(WaitingOn),
    Interrupting,
    Done(Termination),
}

#[derive(Clone, Debug)]
pub struct CallLedger {
    pub id: CallId,
    pub step: u32,
    pub tool: ToolName,
    /// What will run: as requested, or as edited by the decider.
    pub arguments: Arguments,
    /// The digest of the requested arguments.
    pub requested: Digest,
    pub status: CallStatus,
    pub attempt: u32,
    pub class: Option<EffectClass>,
    /// How long the tool lets its calls be held, as the gate saw it when the last attempt began.
    pub expires_in_ms: Option<u64>,
    pub open: Option<Open>,
    pub asked: Vec<Asker>,
    /// Held for an approval, and not started since.
    pub needs_decision: bool,
    /// The last approval. It covers retries too.
    pub approved: Option<Shown>,
    /// A person has decided on it since its last attempt started.
    pub decided_since_start: bool,
    pub said: ReportedToModel,
    pub end_seq: Option<u64>,
    /// Attempts whose outcome is unknown.
    pub doubted: Vec<u32>,
    /// The current attempt was lost with its worker.
    pub lost: bool,
    pub child: Option<RunId>,
    pub grant: Option<u64>,
    /// The number of runs that its child may start or, once it has ended, has started.
    pub descendants: u32,
    pub child_ended: bool,
}

impl CallLedger {
    /// Whether it was approved and has not passed the gate since.
    #[must_use]
    pub fn is_approved_and_unstarted(&self) -> bool {
        self.status == CallStatus::Resuming && self.approved.is_some()
    }
}

/// What the approver was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub arguments: Digest,
    pub definition: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedToModel {
    Nothing,
    Placeholder,
    Result,
}

/// An open suspension.
#[derive(Clone, Debug)]
pub struct Open {
    pub id: SuspensionId,
    pub kind: SuspensionKind,
    pub mode: ResumeMode,
    pub expiry: Option<Expiry>,
    pub definition: Option<Digest>,
    pub doubted: Option<u32>,
    pub asker_count: usize,
    /// The accepted item that answers it and is still unprocessed.
    pub answered_by: Option<Ticket>,
}

impl Open {
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expiry.map(|expiry| expiry.at)
    }
}

impl RunLedger {
    #[must_use]
    pub fn new(order: &RunRequest, revision: Arc<Revision>, event: &Event) -> Self {
        Self {
            run: order.run_id.clone(),
            agent: order.agent.clone(),
            policy: order.policy,
            revision,
            parent: order.parent.clone(),
            loosened_by: order.loosened_by.clone(),
            seq: event.seq,
            at: event.at,
            status: Announced::Queued,
            ending: None,
            step: 0,
            step_open: false,
            inferring: false,
            model_attempt: 0,
            empty_retried: false,
            calls: Vec::new(),
            usage: Usage::default(),
            active_ms: 0,
            active_since: event.at,
            untold_news: false,
            unheard_at_takeover: Vec::new(),
            last_text: String::new(),
            output: OutputBook::default(),
        }
    }

    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&CallLedger> {
        self.calls.iter().find(|call| call.id == *id)
    }

    pub fn call_mut(&mut self, id: &CallId) -> Option<&mut CallLedger> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.status, Announced::Done(_))
    }

    #[must_use]
    pub fn eager(&self) -> bool {
        self.policy.continuation == Continuation::Eager
    }

    pub fn open_suspensions(&self) -> impl Iterator<Item = (&CallLedger, &Open)> {
        self.calls.iter().filter_map(|call| call.open.as_ref().map(|open| (call, open)))
    }

    /// The store's projection of the run at the time of a submission. The item that ends it may be accepted but
    /// unprocessed.
    #[must_use]
    pub fn row(&self, end_is_accepted: bool) -> RunLifecycle {
        if self.ended() {
            RunLifecycle::Ended
        } else if end_is_accepted || self.ending.is_some() {
            RunLifecycle::Ending
        } else {
            RunLifecycle::Open
        }
    }

    /// The store's projection of a call's open suspension.
    #[must_use]
    pub fn suspension_row(&self, call: &CallId) -> Option<SuspensionRow> {
        let call = self.call(call)?;
        let open = call.open.as_ref()?;
        Some(SuspensionRow {
            id: open.id.clone(),
            kind: open.kind,
            mode: open.mode,
            arguments: call.arguments.digest(),
            definition: open.definition,
            expires_at: open.expires_at(),
            answered: open.answered_by.is_some(),
            doubted_attempt: open.doubted,
            is_grantable: call
                .asked
                .iter()
                .rev()
                .take(open.asker_count)
                .any(|asker| !matches!(asker, Asker::Plugin(_))),
        })
    }

    /// Time spent neither queued nor waiting, up to `now`.
    #[must_use]
    pub fn active_ms_at(&self, now: Timestamp) -> u64 {
        let open = if self.status == Announced::Running { now.ms_since(self.active_since) } else { 0 };
        self.active_ms + open
    }

    pub(crate) fn announce(&mut self, status: Announced, at: Timestamp) {
        self.active_ms = self.active_ms_at(at);
        self.active_since = at;
        self.status = status;
    }

    /// Any call Running or Resuming, or New and next in line: executing. Else any Suspended: waiting. Else settled.
    #[must_use]
    pub fn projection(&self) -> Projected {
        let mut held = false;
        for call in &self.calls {
            let executes = match call.status {
                CallStatus::Running | CallStatus::Resuming => true,
                CallStatus::New => self.is_next_in_line(call),
                CallStatus::Suspended
                | CallStatus::Succeeded
                | CallStatus::Failed
                | CallStatus::Cancelled => false,
            };
            if executes {
                return Projected::Executing;
            }
            held |= call.status == CallStatus::Suspended;
        }
        if held { Projected::Waiting } else { Projected::Settled }
    }

    #[must_use]
    pub fn is_next_in_line(&self, call: &CallLedger) -> bool {
        match self.policy.execution {
            Execution::Parallel => true,
            Execution::Sequential => self
                .calls
                .iter()
                .take_while(|before| before.id != call.id)
                .all(|before| before.step != call.step || before.status.terminal()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projected {
    Executing,
    Waiting,
    Settled,
}
