//! Items of a run's feed in, events of one protocol run out.

use serde_json::{Map, Value, json};

use super::answer::AgUiAnswer;
use super::event::{AgUiEvent, AgUiKind, AgUiOutcome};
use super::interrupt::AgUiDelegatedHold;
use super::message::{AgUiMessage, reasoning_id};
use super::segment::AgUiSegment;
use super::snapshot::AgUiConversation;
use crate::feed::{Body, Item, RunEnd, Usage};

/// Encodes one segment of a run.
///
/// Call [`AgUiEncoder::start`], then [`AgUiEncoder::push`] with every item of the run from its first event on, until
/// [`AgUiEncoder::is_done`]. Items up to the segment's `new_after` are folded and sent as snapshots. Live frames count
/// only after that. Repeated items and items of other runs are skipped.
///
/// A reset of an answer that the client has a part of cannot be expressed by deltas: text only ever grows. The message
/// is closed, a `MESSAGES_SNAPSHOT` without it removes it, and the next attempt begins it again under the same id. The
/// same holds for the part of an answer that a failure or an interrupt leaves behind: the log does not keep it.
#[derive(Clone, Debug)]
pub struct AgUiEncoder {
    pub(super) segment: AgUiSegment,
    pub(super) phase: AgUiPhase,
    pub(super) conversation: AgUiConversation,
    pub(super) state: Value,
    pub(super) is_waiting: bool,
    pub(super) end: Option<(RunEnd, Usage)>,
    /// Calls below delegated runs that wait for the user.
    pub(super) delegated: Vec<AgUiDelegatedHold>,
    /// Delegated runs that the stream has announced and not closed.
    pub(super) open_subagents: Vec<String>,
    /// The client shows something that is not in the conversation, or differs from it.
    pub(super) needs_correction: bool,
    /// The conversation or the state has changed since the last snapshots.
    pub(super) is_stale: bool,
    pub(super) answer: Option<AgUiAnswer>,
    /// The user's message of the run is in the log. A queued run does not have it yet.
    pub(super) has_question: bool,
    /// The message id of the open step, as long as the answer is not complete.
    pub(super) unanswered: Option<String>,
    pub(super) open_step: Option<String>,
    /// The Holdpoint run, once an item has named it.
    holdpoint_run: Option<String>,
    last_seq: u64,
    /// The time of the item that is being read.
    at: Option<i64>,
    out: Vec<AgUiEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgUiPhase {
    NotStarted,
    /// Items are folded. Nothing but the start has been sent.
    Past,
    Live,
    Done,
}

impl AgUiEncoder {
    #[must_use]
    pub fn new(mut segment: AgUiSegment) -> Self {
        let conversation = AgUiConversation::new(
            std::mem::take(&mut segment.earlier),
            std::mem::take(&mut segment.client_tools),
            segment.client_result_ids(),
        );
        Self {
            conversation,
            state: segment.state_document(),
            segment,
            phase: AgUiPhase::NotStarted,
            is_waiting: false,
            end: None,
            delegated: Vec::new(),
            open_subagents: Vec::new(),
            needs_correction: false,
            is_stale: true,
            answer: None,
            has_question: false,
            unanswered: None,
            open_step: None,
            holdpoint_run: None,
            last_seq: 0,
            at: None,
            out: Vec::new(),
        }
    }

    /// The response to a `connect` for a thread without an unended run. All messages are in `earlier`.
    #[must_use]
    pub fn replay_idle(segment: AgUiSegment) -> Vec<AgUiEvent> {
        let mut encoder = Self::new(AgUiSegment { new_after: u64::MAX, ..segment });
        encoder.begin();
        encoder.phase = AgUiPhase::Live;
        encoder.send_snapshots();
        encoder.finish_run(Some(AgUiOutcome::Success { pending_tool_call_ids: Vec::new() }), Map::new());
        encoder.out
    }

    /// The first event. It can be sent before the run has any.
    pub fn start(&mut self) -> Vec<AgUiEvent> {
        if self.phase == AgUiPhase::NotStarted {
            self.begin();
        }
        std::mem::take(&mut self.out)
    }

    pub fn push(&mut self, item: &Item) -> Vec<AgUiEvent> {
        if self.phase == AgUiPhase::NotStarted {
            self.begin();
        }
        if self.phase != AgUiPhase::Done && self.is_new(item) {
            self.take(item);
        }
        std::mem::take(&mut self.out)
    }

    /// Says which calls below delegated runs wait for the user. The caller repeats it with the whole list whenever the
    /// list changes.
    pub fn set_delegated(&mut self, holds: Vec<AgUiDelegatedHold>) -> Vec<AgUiEvent> {
        self.delegated = holds;
        if self.phase == AgUiPhase::Live && self.is_waiting {
            self.at = None;
            self.finish_waiting();
        }
        std::mem::take(&mut self.out)
    }

    /// All items of a commit were pushed. If a call is denied while another one is held, the run keeps waiting, and
    /// no item says so.
    pub fn end_commit(&mut self) -> Vec<AgUiEvent> {
        if self.phase == AgUiPhase::Live && self.is_waiting {
            self.finish_waiting();
        }
        std::mem::take(&mut self.out)
    }

    /// Ends the stream because of a failure that is not the run's, such as an unreachable store.
    pub fn abort(&mut self, code: &str, message: &str) -> Vec<AgUiEvent> {
        if self.phase != AgUiPhase::Done {
            self.at = None;
            self.fail(message.to_owned(), code.to_owned(), Map::new());
        }
        std::mem::take(&mut self.out)
    }

    /// The terminal event was returned. Nothing follows it, and the response can be closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == AgUiPhase::Done
    }

    /// The conversation so far, as snapshots show it.
    #[must_use]
    pub fn messages(&self) -> &[AgUiMessage] {
        self.conversation.messages()
    }

    /// The state document so far.
    #[must_use]
    pub const fn state(&self) -> &Value {
        &self.state
    }

    fn begin(&mut self) {
        // `RUN_STARTED` is sent even if the run has a past.
        self.phase = AgUiPhase::Live;
        let (thread_id, run_id) = (self.segment.thread_id.clone(), self.segment.run_id.clone());
        let protocol_version = self.segment.dialect.version();
        self.emit(AgUiKind::RunStarted { thread_id, run_id, protocol_version });
        if self.segment.new_after > 0 {
            self.phase = AgUiPhase::Past;
        } else if !self.segment.client_has_state(&self.state) {
            self.emit(AgUiKind::StateSnapshot { snapshot: self.state.clone() });
        }
    }

    fn is_new(&mut self, item: &Item) -> bool {
        if self.holdpoint_run.as_ref().is_some_and(|run| *run != item.run_id) {
            return false;
        }
        match item.seq {
            Some(seq) => {
                let is_new = seq > self.last_seq;
                self.last_seq = self.last_seq.max(seq);
                is_new
            }
            None => self.phase == AgUiPhase::Live,
        }
    }

    fn take(&mut self, item: &Item) {
        if self.phase == AgUiPhase::Past && item.seq.is_some_and(|seq| seq > self.segment.new_after) {
            self.catch_up();
        }
        if self.phase == AgUiPhase::Done {
            return;
        }
        self.at = Some(item.at);
        if self.holdpoint_run.is_none() {
            self.holdpoint_run = Some(item.run_id.clone());
            self.announce_run();
        }
        self.read(item);
        if self.phase == AgUiPhase::Past {
            if item.seq.is_some_and(|seq| seq >= self.segment.new_after) {
                self.catch_up();
            }
            return;
        }
        if let Some((end, usage)) = self.end.clone() {
            self.finish_ended(&end, usage);
        } else if matches!(item.body, Body::RunWaiting { .. }) {
            self.finish_waiting();
        }
    }

    /// The past is complete: sends it as snapshots, and ends if nothing is to come.
    fn catch_up(&mut self) {
        self.at = None;
        self.phase = AgUiPhase::Live;
        self.answer = None;
        self.open_step = None;
        self.announce_run();
        self.show_supplied_results();
        // From a stream that broke off, the client may have part of the reasoning of an answer that is still being
        // written. A snapshot without reasoning leaves it there, and the whole would be appended to the part.
        let broken_off = self.unanswered.as_deref().map(reasoning_id);
        let broken_off = broken_off.filter(|id| self.segment.client_message_ids.contains(id));
        if self.has_question || !self.client_has_messages() {
            self.send_messages(broken_off);
        }
        self.send_state();
        if self.end.is_some() {
            self.finish_past_end();
        } else {
            self.reopen_subagents();
            if self.is_waiting {
                self.finish_waiting();
            }
        }
    }

    fn announce_run(&mut self) {
        if let Some(run) = self.holdpoint_run.clone() {
            self.emit(AgUiKind::Custom { name: "holdpoint.run", value: json!({"runId": run}) });
        }
    }

    /// Results of the client's own tools that were accepted and are not processed yet stay in the client's history.
    fn show_supplied_results(&mut self) {
        let supplied: Vec<(String, String)> = self
            .conversation
            .calls()
            .held()
            .filter(|(_, hold)| self.segment.decided.contains(&hold.id))
            .filter_map(|(call, _)| {
                let (_, text) = self.segment.client_results.get(&call.requested.call_id)?;
                call.is_client_tool.then(|| (call.requested.call_id.clone(), text.clone()))
            })
            .collect();
        for (call_id, text) in supplied {
            self.conversation.supply(&call_id, &text);
        }
    }

    pub(super) fn send_snapshots(&mut self) {
        self.send_messages(None);
        self.send_state();
    }

    fn send_state(&mut self) {
        self.emit(AgUiKind::StateSnapshot { snapshot: self.state.clone() });
        self.is_stale = false;
    }

    /// `blank_reasoning`: the client has a part of this reasoning that does not count. It keeps reasoning that a snapshot
    /// does not contain, so the snapshot has to empty it.
    pub(super) fn send_messages(&mut self, blank_reasoning: Option<String>) {
        let mut messages = self.conversation.messages().to_vec();
        messages.extend(blank_reasoning.map(|id| AgUiMessage::Reasoning { id, content: String::new() }));
        self.needs_correction = false;
        self.emit(AgUiKind::MessagesSnapshot { messages });
    }

    pub(super) fn emit_all(&mut self, kinds: Vec<AgUiKind>) {
        for kind in kinds {
            self.emit(kind);
        }
    }

    pub(super) fn emit(&mut self, kind: AgUiKind) {
        self.emit_with(kind, Map::new());
    }

    /// Items of the past change what the encoder knows and send nothing.
    pub(super) fn emit_with(&mut self, kind: AgUiKind, metadata: Map<String, Value>) {
        if self.phase == AgUiPhase::Live {
            self.out.push(AgUiEvent { kind, timestamp: self.at, metadata });
        }
    }
}
