//! What a worker remembers of the log while it holds a run: the transcript, and which answer the model gives next.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use machine::Control;
use machine::event::{Event, Fact, Message};
use machine::id::{MessageId, RunId, ThreadId, ToolName};
use machine::phase::Action;
use machine::transcript::{Messages, Transcript};
use machine::trim::Trim;

use crate::store::{Refused, Store, Tenant};
use crate::weight::weight;

const READ_MAX: usize = 1024;
/// Runs that the messages before a run may come from.
const RUNS_MAX: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    transcript: Transcript,
    /// Model calls of this run that were answered or failed.
    answer_count: u32,
    /// The retry that follows replaces an attempt that nobody saw an answer of.
    lost: bool,
    /// Tools that hooks hid in the open step.
    hidden: BTreeSet<ToolName>,
    /// What the last assistant message says.
    last_text: String,
    /// Of the last event of this run that was heard.
    seq: u64,
    /// What it takes up in memory, roughly.
    bytes: usize,
}

impl History {
    /// What the model reads, within these bounds.
    pub(crate) fn messages(&self, trim: &Trim) -> Messages {
        trim.of(&self.thread())
    }

    /// Every message up to here.
    pub(crate) fn thread(&self) -> Messages {
        self.transcript.model_input()
    }

    /// The how-manieth answer of the run the next one is.
    pub(crate) const fn ordinal(&self) -> u32 {
        self.answer_count + 1
    }

    pub(crate) const fn hidden(&self) -> &BTreeSet<ToolName> {
        &self.hidden
    }

    pub(crate) fn last_text(&self) -> &str {
        &self.last_text
    }

    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// An event of this run.
    pub(crate) fn push(&mut self, event: &Event) {
        self.seq = event.seq;
        self.tell(event);
        match &event.fact {
            Fact::MessageAdded(Message::Assistant { text, .. }) => {
                self.answer_count += 1;
                self.last_text.clone_from(text);
            }
            Fact::ModelRetrying { .. } => {
                self.answer_count += u32::from(!std::mem::take(&mut self.lost));
            }
            Fact::RunRecovered { lost_model_attempt: Some(_), .. } => self.lost = true,
            Fact::StepStarted { .. } => self.hidden.clear(),
            Fact::PhaseAnswered { actions, .. } => {
                self.hidden.extend(actions.iter().filter_map(|action| match action {
                    Action::HideTool { tool } => Some(tool.clone()),
                    Action::SetState { .. }
                    | Action::End
                    | Action::AddInstruction { .. }
                    | Action::SetParam { .. }
                    | Action::ReplaceMessage { .. }
                    | Action::SkipInference
                    | Action::DropCall { .. }
                    | Action::SetArguments { .. }
                    | Action::Block { .. }
                    | Action::Suspend(_)
                    | Action::SetResult(_)
                    | Action::AddNote { .. } => None,
                }));
            }
            Fact::RunQueued(_)
            | Fact::RunStarted { .. }
            | Fact::RunWaiting { .. }
            | Fact::RunResumed {}
            | Fact::RunInterrupting { .. }
            | Fact::RunEnding { .. }
            | Fact::RunEnded { .. }
            | Fact::RunRecovered { .. }
            | Fact::StepEnded { .. }
            | Fact::MessageAdded(_)
            | Fact::StateChanged { .. }
            | Fact::ToolRequested { .. }
            | Fact::ApprovalRequested(_)
            | Fact::ApprovalVoided { .. }
            | Fact::ToolApproved { .. }
            | Fact::ToolDenied { .. }
            | Fact::ToolSuspended(_)
            | Fact::ToolResumed { .. }
            | Fact::ExecutionStarted { .. }
            | Fact::ExecutionSucceeded { .. }
            | Fact::ExecutionFailed { .. }
            | Fact::ToolCancelled { .. }
            | Fact::ChildStarted { .. }
            | Fact::ChildEnded { .. } => {}
        }
    }

    /// An event of this run or of one before it.
    fn tell(&mut self, event: &Event) {
        self.transcript.push(event);
        self.bytes += weight(event);
    }

    /// Reads what the run begins with and its own log.
    pub(crate) async fn load(store: &dyn Store, tenant: &Tenant, control: &Control) -> Result<Self, Refused> {
        let mut history = Self::before(store, tenant, &control.thread, control.after.as_ref()).await?;
        let hear = |event: &Arc<Event>| {
            history.push(event);
            ControlFlow::Continue(())
        };
        each_up_to(store, tenant, &control.run, control.seq, hear).await?;
        Ok(history)
    }

    /// The same for whoever only looks: none where it takes up more than this, and then no more was read either.
    pub(crate) async fn load_within(
        store: &dyn Store,
        tenant: &Tenant,
        control: &Control,
        bytes_max: usize,
    ) -> Result<Option<Self>, Refused> {
        let after = control.after.as_ref();
        let Some(mut history) = Self::before_within(store, tenant, &control.thread, after, bytes_max).await?
        else {
            return Ok(None);
        };
        let hear = |event: &Arc<Event>| {
            history.push(event);
            if history.bytes <= bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        each_up_to(store, tenant, &control.run, control.seq, hear).await?;
        Ok(Some(history).filter(|history| history.bytes <= bytes_max))
    }

    #[cfg(test)]
    pub(crate) fn weighing(seq: u64, bytes: usize) -> Self {
        Self { seq, bytes, ..Self::default() }
    }

    /// What a run that begins after this message begins with.
    pub(crate) async fn before(
        store: &dyn Store,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&MessageId>,
    ) -> Result<Self, Refused> {
        let history = Self::before_within(store, tenant, thread, after, usize::MAX).await?;
        Ok(history.unwrap_or_default())
    }

    async fn before_within(
        store: &dyn Store,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&MessageId>,
        bytes_max: usize,
    ) -> Result<Option<Self>, Refused> {
        // From the latest run back to the first: each begins after a message of an earlier one.
        let mut logs: Vec<Vec<Arc<Event>>> = Vec::new();
        let mut bytes = 0;
        let mut next = after.cloned();
        while let Some(message) = next {
            let Some(place) = store.message(tenant, thread, &message).await? else {
                return Err(Refused::Impossible(format!("message {message} is not in its thread")));
            };
            let mut events = Vec::new();
            let hear = |event: &Arc<Event>| {
                bytes += weight(event);
                events.push(event.clone());
                if bytes <= bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            each_up_to(store, tenant, &place.run, place.seq, hear).await?;
            if bytes > bytes_max {
                return Ok(None);
            }
            next = events.iter().find_map(|event| {
                if let Fact::RunStarted { after } = &event.fact { after.clone() } else { None }
            });
            logs.push(events);
            if logs.len() > RUNS_MAX {
                return Err(Refused::Impossible(format!("more than {RUNS_MAX} runs before {message}")));
            }
        }
        let mut history = Self::default();
        for event in logs.iter().rev().flatten() {
            history.tell(event);
        }
        Ok(Some(history))
    }
}

/// Every event up to `last`, until `hear` has enough. Page by page: a long log is never in memory as a whole.
pub(crate) async fn each_up_to(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    last: u64,
    mut hear: impl FnMut(&Arc<Event>) -> ControlFlow<()>,
) -> Result<(), Refused> {
    let mut after = 0;
    while after < last {
        let page = store.events(tenant, run, after, READ_MAX).await?;
        let Some(end) = page.last().map(|committed| committed.event.seq) else { return Ok(()) };
        let mut events = page.iter().map(|committed| &committed.event).filter(|event| event.seq <= last);
        if events.try_for_each(&mut hear).is_break() {
            return Ok(());
        }
        after = end;
    }
    Ok(())
}

/// Whether the log has all of these events, where they say that they stand.
pub(crate) async fn has_stored(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    events: &[Arc<Event>],
) -> Result<bool, Refused> {
    let mut missing = events;
    while let Some(next) = missing.first() {
        let page = store.events(tenant, run, next.seq.saturating_sub(1), missing.len()).await?;
        let (here, rest) = missing.split_at(page.len().min(missing.len()));
        if here.is_empty() || here.iter().zip(&page).any(|(event, stored)| *event != stored.event) {
            return Ok(false);
        }
        missing = rest;
    }
    Ok(!events.is_empty())
}
