//! One pass: applies everything that is ready to the machine, and stores all consequences in one commit.

use std::mem;
use std::sync::Arc;

use machine::delivery::{Delivery, deliveries};
use machine::event::{Event, Fact, Message};
use machine::inbox::{self, Item, Ticket, Verdict};
use machine::policy::DecisionTiming;
use machine::status::RunStatus;
use machine::step_projection::{StepProjection, project_run};
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use machine::{Effect, Input, InputOutcome, Rejection, Timestamp};
use tokio::sync::oneshot;

use super::children::{child_runs, has_all_agents};
use super::takeover::Takeover;
use super::{Batch, Stop, TaskResult, Worker, WorkerContext};
use crate::history::{History, HistoryLimits, log_contains};
use crate::node::{DirectSubmission, Need, Reply};
use crate::store::{Append, Appended, StoreError};

/// How many consecutive passes may fail to commit while nothing new was accepted.
const FRUITLESS_PASSES_MAX: u32 = 16;

/// The submitters that wait for a reply, and the reply each receives after the commit.
type PendingReplies = Vec<(oneshot::Sender<Reply>, Reply)>;

/// A commit for which the store returned no answer.
pub(super) struct UncertainCommit {
    events: Vec<Arc<Event>>,
    answers: PendingReplies,
}

impl Worker {
    pub(super) async fn pass(&mut self, ctx: &WorkerContext) -> Result<(), Stop> {
        if ctx.inbox_signal.take() {
            self.read_inbox().await?;
        }
        let mut fruitless = 0;
        while fruitless <= FRUITLESS_PASSES_MAX {
            let results = mem::take(&mut self.unstored);
            let (takeover, version) = (self.takeover, self.run.version);
            match self.pass_once(ctx, &results).await {
                Ok(()) => {
                    self.inbox_first = false;
                    return self.release_plugin_lock().await;
                }
                // First of all put the results back: they are not stored, and would otherwise be requested again. If
                // another worker has the run, reloading reports it; otherwise a commit whose answer was lost was stored
                // late.
                Err(NotStored::Behind | NotStored::Fenced | NotStored::Reconfigured) => {
                    self.requeue(results, takeover);
                    self.reload().await?;
                }
                Err(NotStored::Overtakes) => {
                    self.requeue(results, takeover);
                    self.inbox_first = true;
                    self.restart_from_committed();
                }
                Err(NotStored::Impossible(why)) => {
                    self.requeue(results, takeover);
                    if !self.ids_were_taken_since().await? {
                        return Err(Stop::Broken(why));
                    }
                    self.reload().await?;
                }
                Err(NotStored::Stop(stop)) => {
                    self.requeue(results, takeover);
                    return Err(stop);
                }
            }
            // Passes repeat as long as new items are accepted. A suspension is answered only once, so this terminates.
            fruitless = if self.run.version == version { fruitless + 1 } else { 0 };
        }
        Err(Stop::Broken("the run stays behind however often it drains its inbox".into()))
    }

    async fn pass_once(&mut self, ctx: &WorkerContext, results: &[TaskResult]) -> Result<(), NotStored> {
        let now = self.node.clock.now();
        let submissions = mem::take(&mut self.submissions);
        let (batch, answers) = self.process_all(ctx, results, submissions, now).await?;
        if batch.overtakes(&self.run.inbox) {
            redirect_to_inbox(answers);
            return Err(NotStored::Overtakes);
        }
        if batch.is_empty() {
            send_replies(answers);
            return Ok(());
        }
        self.commit(batch, answers).await
    }

    /// Puts the results back, to be applied again after the run was reloaded.
    fn requeue(&mut self, results: Vec<TaskResult>, takeover: Takeover) {
        self.unstored.splice(0..0, results);
        self.takeover = takeover;
    }

    async fn process_all(
        &mut self,
        ctx: &WorkerContext,
        results: &[TaskResult],
        submissions: Vec<DirectSubmission>,
        now: Timestamp,
    ) -> Result<(Batch, PendingReplies), NotStored> {
        let mut batch = self.run.begin_batch();
        if self.run.inbox.iter().any(|(_, item)| item.interrupts()) {
            self.process_interrupt(&mut batch, results, now)?;
        } else {
            if let Some(doubt_at) = self.takeover.due() {
                self.record_takeover(&mut batch, doubt_at, now)?;
                self.process_inbox(&mut batch, now)?;
                if self.run.control().ended().is_none() {
                    self.apply(&mut batch, &Input::InboxDrained, None, now)?;
                }
                self.takeover.complete();
            } else if self.inbox_first {
                self.process_inbox(&mut batch, now)?;
            }
            for result in results {
                self.process_result(&mut batch, result, now).await?;
            }
        }
        let answers = self.process_submissions(&mut batch, submissions, now)?;
        self.process_inbox(&mut batch, now)?;
        self.process_deadline(&mut batch, now)?;
        if ctx.slot.is_spare() {
            return Ok((batch, answers));
        }
        self.process_start(&mut batch, now)?;
        self.process_gates(&mut batch, now).await?;
        while self.process_after_tools(&mut batch, now)? {
            self.process_gates(&mut batch, now).await?;
        }
        Ok((batch, answers))
    }

    /// An accepted interrupt ends the run before anything else happens. Tool results and inbox items that arrived by
    /// then are recorded, but have no consequences.
    fn process_interrupt(
        &mut self,
        batch: &mut Batch,
        results: &[TaskResult],
        now: Timestamp,
    ) -> Result<(), NotStored> {
        if let Some(doubt_at) = self.takeover.due() {
            self.record_takeover(batch, doubt_at, now)?;
            self.takeover.complete();
        }
        for result in results {
            let returned = match result {
                TaskResult::Input(input) if matches!(**input, Input::ToolReturned { .. }) => {
                    Some((**input).clone())
                }
                TaskResult::ToolChanged(unsent) => Some(unsent.to_input()),
                TaskResult::Input(_) | TaskResult::Gate { .. } | TaskResult::AfterTool { .. } => None,
            };
            if let Some(input) = returned {
                let first = batch.events.len();
                let outcome = self.run.apply_before_interrupt(batch, &input, None, now);
                self.check_outcome(batch, first, outcome)?;
            }
        }
        self.process_inbox(batch, now)
    }

    fn record_takeover(
        &mut self,
        batch: &mut Batch,
        doubt_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), NotStored> {
        self.apply(batch, &Input::LeaseAcquired { epoch: self.lease.epoch, doubt_at }, None, now)?;
        Ok(())
    }

    /// None if the input was rejected because it came too late. A rejection that is our own bug stops the run.
    pub(super) fn apply(
        &mut self,
        batch: &mut Batch,
        input: &Input,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Option<InputOutcome>, NotStored> {
        let first = batch.events.len();
        let outcome = self.run.apply(batch, input, ticket, now);
        self.check_outcome(batch, first, outcome)
    }

    /// The input led to the events of the batch from `first` on.
    fn check_outcome(
        &mut self,
        batch: &Batch,
        first: usize,
        outcome: Result<InputOutcome, Rejection>,
    ) -> Result<Option<InputOutcome>, NotStored> {
        match outcome {
            Ok(answer) => {
                self.calls.remember(batch.events.get(first..).unwrap_or_default());
                Ok(Some(answer))
            }
            Err(rejection) if rejection.is_internal_error() => Err(broken(&rejection)),
            Err(rejection) => {
                tracing::debug!(run = %self.lease.run, %rejection, "too late");
                Ok(None)
            }
        }
    }

    fn process_inbox(&mut self, batch: &mut Batch, now: Timestamp) -> Result<(), NotStored> {
        let rows = self.run.inbox.iter().enumerate();
        let unheard: Vec<usize> =
            rows.filter(|(_, (ticket, _))| !batch.consumed.contains(ticket)).map(|(row, _)| row).collect();
        if unheard.is_empty() {
            return Ok(());
        }
        let items = self.run.unprocessed(batch).map(|(_, item)| item);
        let interrupted = items.clone().any(Item::interrupts);
        for index in inbox::drain(self.run.control(), items, self.inbox_first) {
            let row = unheard.get(index).and_then(|row| self.run.inbox.get(*row));
            let Some((ticket, item)) = row else { continue };
            let (ticket, interrupts) = (*ticket, item.interrupts());
            batch.consumed.push(ticket);
            let Some(mut input) = inbox::to_input(self.run.control(), item) else { continue };
            if let Input::Decide(decision) = &mut input {
                self.set_current_definition(decision);
            }
            let first = batch.events.len();
            let outcome = if interrupted && !interrupts {
                self.run.apply_before_interrupt(batch, &input, Some(ticket), now)
            } else {
                self.run.apply(batch, &input, Some(ticket), now)
            };
            self.check_outcome(batch, first, outcome)?;
        }
        Ok(())
    }

    async fn process_result(
        &mut self,
        batch: &mut Batch,
        result: &TaskResult,
        now: Timestamp,
    ) -> Result<(), NotStored> {
        match result {
            TaskResult::Input(input) => {
                self.apply(batch, input, None, now)?;
            }
            TaskResult::ToolChanged(unsent) => self.pass_gate_again(batch, unsent, now).await?,
            TaskResult::Gate { call, hooks } => {
                if self.run.wanted().contains(&Effect::Gate(call.clone())) {
                    let gated = self.gated(call, hooks.clone()).await?;
                    self.apply(batch, &Input::Gated(gated), None, now)?;
                }
            }
            TaskResult::AfterTool { .. } => {}
        }
        Ok(())
    }

    /// An item submitted to this worker directly is accepted and consumed in the same commit. If it cannot be processed
    /// at this moment, the store decides.
    fn process_submissions(
        &mut self,
        batch: &mut Batch,
        submissions: Vec<DirectSubmission>,
        now: Timestamp,
    ) -> Result<PendingReplies, NotStored> {
        let mut answers = Vec::new();
        for DirectSubmission { mut item, reply } in submissions {
            if let Item::Decision(decision) | Item::Early { decision, .. } = &mut item {
                self.set_current_definition(decision);
            }
            let Some(input) = self.input_if_processable(batch, &item) else {
                // Reply only after the commit: the item must not overtake those submitted before it.
                answers.push((reply, Reply::UseInbox));
                continue;
            };
            match self.apply(batch, &input, None, now)? {
                Some(InputOutcome::ToolChanged { .. }) => {
                    batch.accepted.push(item);
                    answers.push((reply, Reply::Stored(Verdict::ToolChanged)));
                }
                Some(InputOutcome::Done | InputOutcome::Duplicate) => {
                    batch.accepted.push(item);
                    answers.push((reply, Reply::Stored(Verdict::Accepted)));
                }
                None => answers.push((reply, Reply::UseInbox)),
            }
        }
        Ok(answers)
    }

    fn input_if_processable(&self, batch: &Batch, item: &Item) -> Option<Input> {
        let control = self.run.control();
        let later = control.policy.decisions == DecisionTiming::AtBoundary
            && project_run(control) == StepProjection::Executing;
        let decided = |call| {
            let in_inbox = self.run.inbox.iter().any(|(_, row)| row.call() == Some(call));
            in_inbox || batch.accepted.iter().any(|other| other.call() == Some(call))
        };
        match item {
            Item::Decision(decision) => {
                let same_id = decision.id.is_some()
                    && batch.accepted.iter().filter_map(Item::decision).any(|other| other.id == decision.id);
                if later || decided(&decision.call) || same_id {
                    return None;
                }
            }
            // The accepted items come first. A pass that processes them without the interrupt would start calls; a pass
            // that finds the interrupt in the inbox records them and starts nothing.
            Item::Interrupt { .. } if self.run.unprocessed(batch).next().is_some() => return None,
            Item::Interrupt { .. } => {}
            Item::Early { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => return None,
        }
        // The store knows the ids that were used before, and refuses them when the commit is appended.
        let unheard = self.run.unprocessed(batch).map(|(_, item)| item);
        if !inbox::judge_among(item, control, unheard, None).is_taken() {
            return None;
        }
        inbox::to_input(control, item)
    }

    fn process_deadline(&mut self, batch: &mut Batch, now: Timestamp) -> Result<(), NotStored> {
        if self.run.is_due(now) && self.run.control().ended().is_none() {
            self.apply(batch, &Input::DeadlineReached, None, now)?;
        }
        Ok(())
    }

    fn process_start(&mut self, batch: &mut Batch, now: Timestamp) -> Result<(), NotStored> {
        if self.run.holds_thread && self.run.control().status == RunStatus::Queued {
            let after = self.run.begins_after.clone();
            self.apply(batch, &Input::Start { after }, None, now)?;
        }
        Ok(())
    }

    async fn commit(&mut self, batch: Batch, answers: PendingReplies) -> Result<(), NotStored> {
        self.tasks.hold_back_unwanted(|| self.run.wanted());
        let deliver = self.deliveries(&batch).await?;
        let agents = self.node.agents();
        if !has_all_agents(&batch, &agents) {
            redirect_to_inbox(answers);
            return Err(NotStored::Reconfigured);
        }
        let spawn = child_runs(&batch, &agents, &self.calls.arguments)
            .map_err(|why| NotStored::Stop(Stop::Broken(why)))?;
        let (append, sent) = self.run.prepare(batch, spawn, deliver);
        match self.append(append).await {
            Ok(Appended { woken, version }) => {
                send_replies(answers);
                self.run.stored(&sent, version, &self.node, &self.feed);
                self.plugins.store_state(sent.state);
                self.calls.forget_settled(self.run.control());
                if sent.changes_suspensions {
                    self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
                }
                for run in woken {
                    // A run that has already started and was woken is claimed by the dispatcher, even beyond the
                    // tenant's bound for starting.
                    self.node.wake(&self.lease.tenant, &run, Need::Start);
                }
                Ok(())
            }
            // Check later whether it is stored; do not guess.
            Err(NotStored::Stop(Stop::StoreFailed(trouble))) => {
                self.uncertain_commit = Some(UncertainCommit { events: sent.events, answers });
                Err(NotStored::Stop(Stop::StoreFailed(trouble)))
            }
            Err(refused) => {
                redirect_to_inbox(answers);
                Err(refused)
            }
        }
    }

    /// After a store failure: looks in the log whether the commit without an answer is stored.
    pub(super) async fn resolve_uncertain_commit(&mut self) -> Result<(), Stop> {
        let Some(uncertain_commit) = &self.uncertain_commit else { return Ok(()) };
        let (tenant, run) = (&self.lease.tenant, &self.lease.run);
        // Compare all events: another worker may have stored some that look the same.
        let is_there = log_contains(&*self.node.store, tenant, run, &uncertain_commit.events).await?;
        if let Some(UncertainCommit { answers, .. }) = self.uncertain_commit.take() {
            if is_there { send_replies(answers) } else { redirect_to_inbox(answers) }
        }
        Ok(())
    }

    async fn append(&self, append: Append) -> Result<Appended, NotStored> {
        match self.node.store.append(&self.lease, append).await {
            Ok(appended) => Ok(appended),
            Err(StoreError::Behind) => Err(NotStored::Behind),
            Err(StoreError::Fenced) => Err(NotStored::Fenced),
            Err(StoreError::Impossible(why)) => Err(NotStored::Impossible(why)),
            Err(refused) => Err(NotStored::Stop(refused.into())),
        }
    }

    /// Deliveries of this commit to other runs. Most commits have none, which this detects without a fold.
    async fn deliveries(&mut self, batch: &Batch) -> Result<Vec<Delivery>, NotStored> {
        let ended = self.run.control().ended().is_some() && self.run.control().parent.is_some();
        let cancels = batch.events.iter().any(|event| matches!(event.fact, Fact::ToolCancelled { .. }));
        let has_child = batch
            .before()
            .is_some_and(|before| before.pending().iter().any(|open| open.kind == SuspensionKind::ChildRun));
        // The commit that starts a child may also abandon it.
        let has_child =
            has_child || batch.events.iter().any(|event| matches!(event.fact, Fact::ChildStarted { .. }));
        if !(ended || cancels && has_child) {
            return Ok(Vec::new());
        }
        let said_here = batch.events.iter().rev().find_map(|event| {
            if let Fact::MessageAdded(Message::Assistant { text, .. }) = &event.fact {
                Some(text.clone())
            } else {
                None
            }
        });
        let last_text = match said_here {
            Some(text) => text,
            // The last text of a cancelled run is never read, and its log may be the one that cannot be read.
            None if ended && !matches!(self.run.control().ended(), Some(Termination::Cancelled(_))) => {
                self.history().await?.last_text().to_owned()
            }
            None => String::new(),
        };
        deliveries(batch.before().map(|before| &**before), &batch.events, &last_text)
            .map_err(|impossible| NotStored::Stop(Stop::Broken(impossible.to_string())))
    }

    /// The transcript is read when it is first needed, and kept while the run is in memory.
    pub(super) async fn history(&mut self) -> Result<&History, Stop> {
        if self.run.history.is_none() {
            let trim = self.pinned.trim;
            let all = trim.is_unlimited();
            let bytes_max = if all { self.node.settings.thread_bytes_max } else { usize::MAX };
            let (store, tenant) = (&*self.node.store, &self.lease.tenant);
            let limits = HistoryLimits { trim, bytes_max };
            self.run.history = Some(History::load(store, tenant, &self.run.committed, limits).await?);
        }
        Ok(self.run.history.get_or_insert_default())
    }
}

/// Items that could not be stored with this commit are left for the store to decide.
fn redirect_to_inbox(answers: PendingReplies) {
    for (reply, _) in answers {
        let _ = reply.send(Reply::UseInbox);
    }
}

fn send_replies(answers: PendingReplies) {
    for (reply, answer) in answers {
        // The submitter may be gone; its item is stored anyway.
        let _ = reply.send(answer);
    }
}

fn broken(rejection: &Rejection) -> NotStored {
    NotStored::Stop(Stop::Broken(rejection.to_string()))
}

/// Why a pass did not end in a commit.
pub(super) enum NotStored {
    /// An item was accepted that this worker has not seen: reload and repeat the pass.
    Behind,
    /// The pass would close a suspension that an accepted answer in the inbox is for: repeat it, and process the inbox
    /// first.
    Overtakes,
    /// The log has advanced, or another worker has the run.
    Fenced,
    /// An agent that a call delegates to was removed after the gate had seen it: repeat the pass.
    Reconfigured,
    /// The rows contradict what is stored.
    Impossible(String),
    Stop(Stop),
}

impl From<Stop> for NotStored {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}
