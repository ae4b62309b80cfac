//! What a worker remembers of the log while it holds a run: the transcript, and the ordinal of the next model answer.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use machine::Control;
use machine::event::{Event, Fact, Message};
use machine::id::{MessageId, RunId, ThreadId, ToolName};
use machine::phase::Action;
use machine::transcript::{Messages, ModelMessage, Transcript};
use machine::trim::{ReadBack, Trim};

use crate::store::{LogEntry, Store, StoreError, Tenant};
use crate::weight::weight;

const READ_MAX: usize = 1024;
/// Maximum number of earlier runs whose messages are read. Older ones are left out.
const RUNS_MAX: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    transcript: Transcript,
    /// The thread has more runs before these.
    is_cut: bool,
    /// Model calls of this run that were answered or failed.
    answer_count: u32,
    /// The next retry replaces an attempt whose answer was lost with its worker.
    lost: bool,
    /// Tools that hooks hid in the open step.
    hidden: BTreeSet<ToolName>,
    /// The text of the last assistant message.
    last_text: String,
    /// The last event of this run that was pushed.
    seq: u64,
    /// Approximate size in memory.
    bytes: usize,
    /// The history before this run is too large to be read, and is not included.
    is_too_long: bool,
}

/// Limits for the history before a run: as much as is needed to show the model what it may see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimits {
    pub(crate) trim: Trim,
    /// If more would have to be kept, nothing is.
    pub(crate) bytes_max: usize,
}

impl History {
    /// The messages that the model reads, within these bounds.
    pub(crate) fn messages(&self, trim: &Trim) -> Messages {
        let messages = self.transcript.model_input();
        if !self.is_cut {
            return trim.apply(&messages);
        }
        let mut shown = Messages::after_omitted(messages.left_out());
        shown.push(ModelMessage::Notice {
            text: format!("[messages before the last {RUNS_MAX} runs left out]"),
        });
        shown.append(&messages);
        trim.apply(&shown)
    }

    /// Every message up to here; None if not all of them were read.
    pub(crate) fn thread(&self) -> Option<Messages> {
        let messages = self.transcript.model_input();
        (!self.is_cut && messages.left_out() == 0).then_some(messages)
    }

    /// The model cannot be called.
    pub(crate) const fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Ordinal of the next model answer of the run, starting at 1.
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
        self.push_to_transcript(event);
        let fact = &event.fact;
        if let Fact::MessageAdded(Message::Assistant { text, .. }) = fact {
            self.answer_count += 1;
            self.last_text.clone_from(text);
        }
        if let Fact::ModelRetrying { .. } = fact {
            self.answer_count += u32::from(!std::mem::take(&mut self.lost));
        }
        if let Fact::RunRecovered { lost_model_attempt: Some(_), .. } = fact {
            self.lost = true;
        }
        if let Fact::StepStarted { .. } = fact {
            self.hidden.clear();
        }
        if let Fact::PhaseAnswered { actions, .. } = fact {
            for action in actions {
                if let Action::HideTool { tool } = action {
                    self.hidden.insert(tool.clone());
                }
            }
        }
    }

    /// An event of this run or of an earlier one.
    fn push_to_transcript(&mut self, event: &Event) {
        self.transcript.push(event);
        self.bytes += weight(event);
    }

    /// Reads the history before the run, and its own log.
    pub(crate) async fn load(
        store: &dyn Store,
        tenant: &Tenant,
        control: &Control,
        limits: HistoryLimits,
    ) -> Result<Self, StoreError> {
        let before =
            Self::load_before(store, tenant, &control.thread, control.after.as_ref(), limits).await?;
        let mut history = before.unwrap_or_else(|| Self { is_too_long: true, ..Self::default() });
        let visit = |event: &Arc<Event>| {
            history.push(event);
            ControlFlow::Continue(())
        };
        for_each_event(store, tenant, &control.run, control.seq, visit).await?;
        Ok(history)
    }

    /// The same for readers without a lease: None if it takes up more than the limit, and reading stops there.
    pub(crate) async fn load_within(
        store: &dyn Store,
        tenant: &Tenant,
        control: &Control,
        limits: HistoryLimits,
    ) -> Result<Option<Self>, StoreError> {
        let bytes_max = limits.bytes_max;
        let after = control.after.as_ref();
        let Some(mut history) = Self::load_before(store, tenant, &control.thread, after, limits).await?
        else {
            return Ok(None);
        };
        let visit = |event: &Arc<Event>| {
            history.push(event);
            if history.bytes <= bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        for_each_event(store, tenant, &control.run, control.seq, visit).await?;
        Ok(Some(history).filter(|history| history.bytes <= bytes_max))
    }

    #[cfg(test)]
    pub(crate) fn with_size(seq: u64, bytes: usize) -> Self {
        Self { seq, bytes, ..Self::default() }
    }

    /// The history of a run that begins after this message; None if more than the limit would have to be kept.
    ///
    /// Reads from the latest run back to the first, one log at a time: each begins after a message of an earlier one.
    /// Once the model cannot be shown more, the messages of the remaining runs are only counted.
    async fn load_before(
        store: &dyn Store,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&MessageId>,
        HistoryLimits { trim, bytes_max }: HistoryLimits,
    ) -> Result<Option<Self>, StoreError> {
        let mut runs: Vec<Messages> = Vec::new();
        let (mut bytes, mut run_count, mut left_out) = (0, 0, 0);
        let (mut read, mut is_filled) = (ReadBack::default(), false);
        let mut next = after.cloned();
        while run_count < RUNS_MAX
            && let Some(message) = next.take()
        {
            let Some(place) = store.message(tenant, thread, &message).await? else {
                return Err(StoreError::Impossible(format!("message {message} is not in its thread")));
            };
            let (mut messages_of_run, mut earlier) = (Transcript::default(), None);
            let visit = |event: &Arc<Event>| {
                if let Fact::RunStarted { after } = &event.fact {
                    earlier.clone_from(after);
                }
                messages_of_run.push(event);
                bytes += if is_filled { 0 } else { weight(event) };
                if bytes <= bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            for_each_event(store, tenant, &place.run, place.seq, visit).await?;
            if bytes > bytes_max {
                return Ok(None);
            }
            let messages_of_run = messages_of_run.model_input();
            if is_filled {
                left_out += messages_of_run.len();
            } else {
                if !trim.is_unlimited() {
                    read.add(&messages_of_run);
                    is_filled = trim.is_filled_by(&read);
                }
                runs.push(messages_of_run);
            }
            run_count += 1;
            next = earlier;
        }
        let mut messages = Messages::after_omitted(left_out);
        runs.iter().rev().for_each(|messages_of_run| messages.append(messages_of_run));
        let transcript = Transcript::after_messages(messages);
        Ok(Some(Self { transcript, is_cut: next.is_some(), bytes, ..Self::default() }))
    }
}

/// Visits every event up to `last`, until `visit` breaks. Reads page by page: a long log is never in memory as a whole.
pub(crate) async fn for_each_event(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    last: u64,
    mut visit: impl FnMut(&Arc<Event>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut after = 0;
    while after < last {
        let page = store.events(tenant, run, after, READ_MAX).await?;
        let Some(end) = page.last().map(LogEntry::seq) else { return Ok(()) };
        for logged in page.iter().filter(|logged| logged.seq() <= last) {
            if visit(&logged.decoded()?.event).is_break() {
                return Ok(());
            }
        }
        after = end;
    }
    Ok(())
}

/// Whether the log has all of these events at their sequence numbers.
pub(crate) async fn log_contains(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    events: &[Arc<Event>],
) -> Result<bool, StoreError> {
    let mut missing = events;
    while let Some(next) = missing.first() {
        let page = store.events(tenant, run, next.seq.saturating_sub(1), missing.len()).await?;
        let (here, rest) = missing.split_at(page.len().min(missing.len()));
        let is_stored =
            |event: &Arc<Event>, at: &LogEntry| at.readable().is_some_and(|at| at.event == *event);
        if here.is_empty() || here.iter().zip(&page).any(|(event, at)| !is_stored(event, at)) {
            return Ok(false);
        }
        missing = rest;
    }
    Ok(!events.is_empty())
}
