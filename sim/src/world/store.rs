//! The store: one transaction per append, an inbox per run, leases with fencing, and the checks after every commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::decision::{Decision, DecisionAction};
use machine::delivery;
use machine::event::{Event, Fact, Message};
use machine::grant::Grant;
use machine::id::{CallId, DecisionId, MessageId, RunId, ThreadId};
use machine::inbox::{self, Item, SubmitContext, Verdict};
use machine::policy::OnReject;
use machine::revision::Revision;
use machine::suspension::SuspensionKind;
use machine::transcript::Transcript;
use machine::{Control, Input, Rejection, Run, Timestamp};

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{RunLedger, Ticket};
use crate::judge::model_input;
use crate::play::coverage::Coverage;
use crate::world::setup::Agent;
use crate::world::{commit, thread_rows};

/// A run's index in the store.
pub type RunIndex = usize;
pub type ThreadIndex = usize;

#[derive(Clone, Debug)]
pub struct StoredRun {
    pub id: RunId,
    pub thread: ThreadIndex,
    pub agent: usize,
    pub revision: Arc<Revision>,
    pub log: Vec<Event>,
    /// The control as the last append wrote it.
    pub control: Vec<u8>,
    /// The fold of the log, separate from the workers' copies.
    pub folded: Control,
    pub inbox: Vec<Row>,
    /// Raised with every accepted item and every commit.
    pub version: u64,
    pub ledger: RunLedger,
    pub epoch: u64,
    pub leased: bool,
    pub interrupt_accepted: bool,
    pub decisions: BTreeMap<DecisionId, Decision>,
    pub wake_at: Option<Timestamp>,
    pub end_delivered: bool,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub ticket: Ticket,
    pub item: Item,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadRow {
    pub id: Option<ThreadId>,
    pub holder: Option<RunIndex>,
    pub queue: Vec<RunIndex>,
    pub call_ids: BTreeSet<CallId>,
    pub transcript: Transcript,
    pub last_message: Option<MessageId>,
    /// The grants for all tools and for single tools.
    pub grants: Vec<Grant>,
}

#[derive(Clone, Debug)]
pub struct Store {
    /// The agent that child runs belong to.
    pub clerk: Agent,
    pub runs: Vec<StoredRun>,
    pub threads: Vec<ThreadRow>,
    pub by_id: BTreeMap<RunId, RunIndex>,
    pub last_ticket: Ticket,
    /// Attempts that were sent to their tool.
    pub sent: BTreeSet<(RunIndex, CallId, u32)>,
    /// Whether this world also encodes and decodes every event.
    pub checks_storage: bool,
}

/// One input to a run, and what followed from it.
#[derive(Clone, Debug)]
pub struct ProcessedInput {
    pub input: Input,
    pub ticket: Option<Ticket>,
    pub events: Vec<Event>,
    pub rejected: Option<Rejection>,
    /// How many of the rows that the commit consumes were processed by then.
    pub heard_count: usize,
    /// Whether an accepted interrupt waited after it.
    pub before_interrupt: bool,
}

/// What a worker wants to store in one commit.
#[derive(Clone, Debug, Default)]
pub struct Append {
    pub said: Vec<ProcessedInput>,
    pub consumed: Vec<Ticket>,
    /// Decisions sent directly to the worker: accepted and consumed in this commit.
    pub accepted: Vec<(Ticket, Decision)>,
    pub control: Vec<u8>,
}

impl Append {
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.said.iter().map(|said| said.events.len()).sum()
    }
}

/// How much of its run a worker has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub seq: u64,
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another worker holds the run, or the log has grown.
    Fenced,
    /// Something was accepted that the worker has not seen.
    Behind,
}

impl Store {
    #[must_use]
    pub const fn new(clerk: Agent, checks_storage: bool) -> Self {
        Self {
            clerk,
            runs: Vec::new(),
            threads: Vec::new(),
            by_id: BTreeMap::new(),
            last_ticket: 0,
            sent: BTreeSet::new(),
            checks_storage,
        }
    }

    pub const fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    #[must_use]
    pub fn unended(&self) -> Vec<RunIndex> {
        (0..self.runs.len()).filter(|run| !self.runs[*run].ledger.ended()).collect()
    }

    /// Takes the lease. The rows that are in the inbox now must be processed before any attempt starts.
    pub fn claim(&mut self, run: RunIndex) -> Checked<Run> {
        let stored = &mut self.runs[run];
        stored.epoch += 1;
        stored.leased = true;
        let at_boundary = stored.ledger.policy.decisions == machine::policy::DecisionTiming::AtBoundary;
        stored.ledger.unheard_at_takeover = stored
            .inbox
            .iter()
            .filter(|row| match &row.item {
                Item::Early { .. } => false,
                // With this policy it is deferred while a call executes.
                Item::Decision(_) => !at_boundary,
                Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => true,
            })
            .map(|row| row.ticket)
            .collect();
        stored.load()
    }

    /// A released run needs a worker again because of its inbox, its deadline or its place at the head of a thread.
    #[must_use]
    pub fn needs_a_worker(&self, run: RunIndex, now: Timestamp) -> bool {
        let stored = &self.runs[run];
        if stored.leased || stored.ledger.ended() {
            return false;
        }
        let holds = self.threads[stored.thread].holder == Some(run);
        let working = match stored.ledger.status {
            crate::judge::ledger::Announced::Waiting(_) | crate::judge::ledger::Announced::Done(_) => false,
            crate::judge::ledger::Announced::Queued => holds,
            crate::judge::ledger::Announced::Running | crate::judge::ledger::Announced::Interrupting => true,
        };
        working || !stored.inbox.is_empty() || stored.wake_at.is_some_and(|at| at <= now)
    }

    /// Refused while the inbox holds an item.
    pub fn release(&mut self, run: RunIndex) -> bool {
        let stored = &mut self.runs[run];
        if !stored.inbox.is_empty() {
            return false;
        }
        stored.leased = false;
        true
    }

    /// The only way to commit. `Refused` is the store's regular answer; a breach of an invariant ends the world.
    pub fn append(
        &mut self,
        run: RunIndex,
        epoch: u64,
        seen: Seen,
        append: &Append,
        coverage: &mut Coverage,
    ) -> Checked<Result<(), Refused>> {
        let stored = &self.runs[run];
        if stored.epoch != epoch || stored.ledger.seq != seen.seq {
            return Ok(Err(Refused::Fenced));
        }
        if stored.version != seen.version {
            return Ok(Err(Refused::Behind));
        }
        let before = stored.folded.clone();
        for (ticket, decision) in &append.accepted {
            self.mark_answered(run, &decision.call, *ticket);
            self.remember(run, decision);
        }
        coverage.commit(append);
        let expected_interrupts = commit::write_events(self, run, append, coverage)?;
        let stored = &mut self.runs[run];
        stored.inbox.retain(|row| !append.consumed.contains(&row.ticket));
        stored.version += 1;
        stored.check_control(&append.control)?;
        let known = self.runs.len();
        self.deliver(run, &before, append, &expected_interrupts)?;
        for child in &self.runs[known..] {
            coverage.created(&child.ledger);
        }
        self.mark_early(run);
        if self.runs[run].ledger.ended() {
            thread_rows::promote_next(self, run)?;
        }
        thread_rows::check(self, run)?;
        Ok(Ok(()))
    }

    pub(crate) fn mark_answered(&mut self, run: RunIndex, call: &CallId, ticket: Ticket) {
        if let Some(open) = self.runs[run].ledger.call_mut(call).and_then(|call| call.open.as_mut()) {
            open.answered_by = Some(ticket);
        }
    }

    pub(crate) fn remember(&mut self, run: RunIndex, decision: &Decision) {
        if let Some(id) = &decision.id {
            self.runs[run].decisions.insert(id.clone(), decision.clone());
        }
    }

    /// A decision given early answers the approval that has opened for exactly the same arguments.
    fn mark_early(&mut self, run: RunIndex) {
        let stored = &mut self.runs[run];
        for row in &stored.inbox {
            let Item::Early { decision, digest } = &row.item else { continue };
            let Some(call) = stored.ledger.call_mut(&decision.call) else { continue };
            let same = call.arguments.digest() == *digest;
            if let Some(open) = &mut call.open
                && open.kind == SuspensionKind::Approval
                && open.answered_by.is_none()
                && same
            {
                open.answered_by = Some(row.ticket);
            }
        }
    }

    /// Creates children and delivers items to other runs, in the same commit.
    fn deliver(
        &mut self,
        run: RunIndex,
        before: &Control,
        append: &Append,
        expected_interrupts: &[RunId],
    ) -> Checked {
        let events: Vec<Event> = append.said.iter().flat_map(|said| said.events.iter().cloned()).collect();
        if events.is_empty() {
            return Ok(());
        }
        for spawn in delivery::spawns(&events) {
            let clerk = self.clerk.clone();
            thread_rows::create_child(self, run, &spawn, &clerk)?;
        }
        let stored = &self.runs[run];
        let deliveries = match delivery::deliveries(Some(before), &events, &stored.ledger.last_text) {
            Ok(deliveries) => deliveries,
            Err(impossible) => return breach(Invariant::NothingIsBroken, impossible.to_string()),
        };
        let ended_child = stored.ledger.ended() && stored.ledger.parent.is_some();
        let ends = deliveries.iter().filter(|one| matches!(one.item, Item::ChildEnded(_))).count();
        ensure(
            ends == usize::from(ended_child) && !(ended_child && stored.end_delivered),
            Invariant::ChildEndIsDeliveredOnce,
            || format!("{} delivers {ends} ends to its parent", stored.id),
        )?;
        let interrupted: Vec<RunId> = deliveries
            .iter()
            .filter(|one| matches!(one.item, Item::Interrupt { .. }))
            .map(|one| one.to.clone())
            .collect();
        ensure(interrupted == expected_interrupts, Invariant::InterruptReachesChildren, || {
            format!("children left alone are {expected_interrupts:?}, interrupted are {interrupted:?}")
        })?;
        self.runs[run].end_delivered = ended_child;
        for one in deliveries {
            let Some(to) = self.by_id.get(&one.to).copied() else {
                return breach(Invariant::ChildEndIsDeliveredOnce, format!("there is no run {}", one.to));
            };
            let interrupts = matches!(one.item, Item::Interrupt { .. });
            if self.runs[to].ledger.ended() || (interrupts && self.runs[to].interrupt_accepted) {
                continue;
            }
            self.put(to, one.item);
            self.runs[to].interrupt_accepted |= interrupts;
        }
        Ok(())
    }

    /// Puts an accepted item into an inbox.
    pub(crate) fn put(&mut self, run: RunIndex, item: Item) -> Ticket {
        let ticket = self.ticket();
        self.runs[run].inbox.push(Row { ticket, item });
        self.runs[run].version += 1;
        ticket
    }
}

impl StoredRun {
    /// What a worker starts from: the stored control, never the log.
    pub fn load(&self) -> Checked<Run> {
        match Control::decode(&self.control) {
            Ok(control) => Ok(Run::new(self.revision.clone(), control)),
            Err(unreadable) => breach(Invariant::FoldIsControl, format!("{unreadable:?}")),
        }
    }

    /// Only an interrupt is still accepted: an interrupt was accepted, or a denial that ends the run and is still
    /// unprocessed. Written independently of the machine.
    pub(crate) fn is_on_its_way_out(&self) -> bool {
        let ends = |item: &Item| {
            let (Item::Decision(decision) | Item::Early { decision, .. }) = item else { return false };
            match &decision.action {
                DecisionAction::Resume(_) => false,
                DecisionAction::Cancel { then: Some(then), .. } => *then == OnReject::EndRun,
                DecisionAction::Cancel { then: None, .. } => {
                    self.ledger.policy.on_reject == Some(OnReject::EndRun)
                }
            }
        };
        let denied = self.ledger.open_suspensions().any(|(_, open)| {
            open.kind == SuspensionKind::Approval
                && self.inbox.iter().any(|row| open.answered_by == Some(row.ticket) && ends(&row.item))
        });
        self.interrupt_accepted || denied
    }

    /// The decision that was accepted earlier under the same id.
    pub(crate) fn earlier(&self, decision: &Decision) -> Option<&Decision> {
        self.decisions.get(decision.id.as_ref()?)
    }

    pub(crate) fn judge(&self, item: &Item) -> Verdict {
        let inbox = self.items();
        let earlier = item.decision().and_then(|decision| self.earlier(decision));
        inbox::judge_item(item, &SubmitContext { control: &self.folded, inbox: &inbox, earlier })
    }

    pub(crate) fn items(&self) -> Vec<Item> {
        self.inbox.iter().map(|row| row.item.clone()).collect()
    }

    /// An item that was processed without effect no longer counts as an answer.
    pub(crate) fn forget_heard(&mut self, heard: Ticket) {
        for open in self.ledger.calls.iter_mut().filter_map(|call| call.open.as_mut()) {
            if open.answered_by == Some(heard) {
                open.answered_by = None;
            }
        }
    }

    fn check_control(&mut self, control: &[u8]) -> Checked {
        ensure(control.len() <= machine::control::CONTROL_BYTES_MAX, Invariant::ControlIsSmall, || {
            format!("{} bytes", control.len())
        })?;
        self.control = control.to_vec();
        let loaded = self.load()?;
        ensure(loaded.control == self.folded, Invariant::FoldIsControl, || {
            format!("stored {:?}\nfolded {:?}", loaded.control, self.folded)
        })?;
        self.wake_at = loaded.next_deadline().map(|deadline| deadline.at);
        Ok(())
    }
}

/// Whether the item is put into the inbox.
#[must_use]
pub const fn is_taken(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Accepted | Verdict::ToolChanged => true,
        Verdict::AlreadyApplied | Verdict::Refused(_) => false,
    }
}

/// Whether both say the same about the same suspension, no matter when and by whom.
#[must_use]
pub fn same_content(one: &Decision, other: &Decision) -> bool {
    one.call == other.call && one.suspension == other.suspension && one.action == other.action
}

impl ThreadRow {
    /// Adds an event to the thread. The model input must be valid at every point.
    pub(crate) fn hear(&mut self, event: &Event) -> Checked {
        if let Fact::MessageAdded(message) = &event.fact {
            match message {
                Message::User { .. }
                | Message::Assistant { .. }
                | Message::Tool { .. }
                | Message::Note { .. }
                | Message::Correction { .. }
                | Message::CallsDropped { .. }
                | Message::Interruption { .. } => {
                    self.last_message = Some(message.id().clone());
                }
            }
        }
        self.transcript.push(event);
        if model_input::is_changed_by(&event.fact) {
            model_input::check(&self.transcript.model_input())?;
        }
        Ok(())
    }
}
