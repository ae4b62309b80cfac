//! How a segment ends: the run waits for the client, or it is over.

use serde_json::{Map, Value, json};

use super::encode::{AgUiEncoder, AgUiPhase};
use super::event::{AgUiDialect, AgUiInterrupt, AgUiKind, AgUiOutcome, AgUiSubagentOutcome, AgUiUsage};
use super::interrupt::{self, AgUiDelegatedHold};
use crate::feed::{CompletedReason, RunEnd, Usage};

/// Stops that the agent is configured to end with. Any other stop cuts the work short.
const CONFIGURED_STOPS: [&str; 2] = ["stop_on_tool", "content_match"];

/// What an ended run is for the protocol.
enum AgUiVerdict {
    Success,
    /// Ended on purpose before it was complete.
    Stopped,
    Interrupted,
    Error {
        code: String,
        message: String,
    },
}

impl AgUiEncoder {
    /// The run waits. The segment ends if the client has to do something: answer, or run a tool. While only other
    /// systems work, it stays open, and so it does while an answer of the client is not processed.
    pub(super) fn finish_waiting(&mut self) {
        let decided = &self.segment.decided;
        if self.conversation.calls().held().any(|(_, hold)| decided.contains(&hold.id)) {
            return;
        }
        let interrupts = self.interrupts();
        let pending = self.pending_client_calls();
        if interrupts.is_empty() && pending.is_empty() {
            return;
        }
        self.close_everything();
        if interrupts.is_empty() {
            self.restate_if_needed();
            self.finish_run(Some(AgUiOutcome::Success { pending_tool_call_ids: pending }), Map::new());
            return;
        }
        if self.is_stale || self.needs_correction {
            self.send_snapshots();
        }
        // The outcome has no place for calls of client tools beside interrupts. The client answers the interrupts
        // first; the run that continues then names the calls again.
        let mut metadata = Map::new();
        if !pending.is_empty() {
            metadata.insert("holdpoint".to_owned(), json!({"pendingToolCallIds": pending}));
        }
        self.finish_run(Some(AgUiOutcome::Interrupt { interrupts }), metadata);
    }

    pub(super) fn finish_ended(&mut self, end: &RunEnd, usage: Usage) {
        self.close_everything();
        self.restate_if_needed();
        let metadata = end_metadata(end);
        match (verdict(end), self.segment.dialect) {
            (AgUiVerdict::Error { code, message }, _) => self.fail(message, code, metadata),
            (AgUiVerdict::Interrupted, AgUiDialect::Before) => {
                self.fail("The run was stopped".to_owned(), "STOPPED".to_owned(), metadata);
            }
            (AgUiVerdict::Interrupted | AgUiVerdict::Stopped, AgUiDialect::V1_0) => {
                self.finish_with_usage(Some(AgUiOutcome::Cancelled), usage, metadata);
            }
            // The older dialect has no outcome for it, and an error would be wrong: the metadata says why it ended.
            (AgUiVerdict::Stopped, AgUiDialect::Before) => self.finish_with_usage(None, usage, metadata),
            (AgUiVerdict::Success, _) => {
                let success = AgUiOutcome::Success { pending_tool_call_ids: Vec::new() };
                self.finish_with_usage(Some(success), usage, metadata);
            }
        }
    }

    /// The run was over before the client asked. An error is not reported again, and only `RUN_FINISHED` makes the client
    /// forget interrupts that cannot be answered any more.
    pub(super) fn finish_past_end(&mut self) {
        let metadata = self.end.as_ref().map(|(end, _)| end_metadata(end)).unwrap_or_default();
        let success = AgUiOutcome::Success { pending_tool_call_ids: Vec::new() };
        self.finish_run(Some(success), metadata);
    }

    /// One per held call that the client can answer.
    fn interrupts(&self) -> Vec<AgUiInterrupt> {
        let dialect = self.segment.dialect;
        let held = self.conversation.calls().held();
        let mut interrupts: Vec<AgUiInterrupt> = held
            .filter_map(|(call, hold)| {
                let schema = self.segment.tool_schemas.get(&call.requested.tool);
                interrupt::interrupt_for_call(dialect, call, hold, schema)
            })
            .collect();
        for hold in self.open_delegated() {
            if interrupts.iter().all(|known| known.id != hold.id) {
                let is_open = self.open_subagents.contains(&hold.child_run_id);
                interrupts.push(interrupt::interrupt_for_delegated(dialect, hold, is_open));
            }
        }
        interrupts
    }

    /// Those below delegated runs that have not returned. An answer that the client has just given counts, even if the
    /// run below has not processed it yet.
    fn open_delegated(&self) -> impl Iterator<Item = &AgUiDelegatedHold> {
        let calls = self.conversation.calls();
        let is_open = |run: &str| calls.open_children().any(|(_, child)| child == run);
        let unanswered = self.delegated.iter().filter(|hold| !self.segment.decided.contains(&hold.id));
        unanswered.filter(move |hold| is_open(&hold.child_run_id))
    }

    /// Calls that the client has to run, whichever segment asked for them.
    fn pending_client_calls(&self) -> Vec<String> {
        let held = self.conversation.calls().held();
        let pending = held.filter(|(call, _)| call.is_held_as(super::calls::AgUiHoldKind::ClientTool));
        pending.map(|(call, _)| call.requested.call_id.clone()).collect()
    }

    fn close_everything(&mut self) {
        self.abandon_answer();
        self.finish_step();
        for subagent_run_id in std::mem::take(&mut self.open_subagents) {
            let held = self.open_delegated().filter(|hold| hold.child_run_id == subagent_run_id);
            let interrupt_ids = held.map(|hold| hold.id.clone()).collect();
            let outcome = Some(AgUiSubagentOutcome::Suspended { interrupt_ids });
            self.emit(AgUiKind::SubagentFinished { subagent_run_id, outcome });
        }
    }

    /// CopilotKit keeps tool messages of its own in place of results that a continuation streams, unless a snapshot
    /// states the real ones.
    fn restate_if_needed(&mut self) {
        let continues = self.segment.new_after > 0;
        if self.needs_correction || (continues && self.is_stale) {
            self.send_messages(None);
        }
    }

    /// The counts of the feed are those of the whole run, so they are right only for a segment that is the whole run.
    fn finish_with_usage(
        &mut self,
        outcome: Option<AgUiOutcome>,
        usage: Usage,
        metadata: Map<String, Value>,
    ) {
        let counted = |tokens: u64| (tokens > 0).then_some(tokens);
        let counts = AgUiUsage {
            input_tokens: counted(usage.input_tokens),
            output_tokens: counted(usage.output_tokens),
        };
        let is_known = counts.input_tokens.is_some() || counts.output_tokens.is_some();
        let is_whole = self.segment.new_after == 0 && self.segment.dialect == AgUiDialect::V1_0;
        let usage = if is_known && is_whole { vec![counts] } else { Vec::new() };
        self.finish(outcome, usage, metadata);
    }

    pub(super) fn finish_run(&mut self, outcome: Option<AgUiOutcome>, metadata: Map<String, Value>) {
        self.finish(outcome, Vec::new(), metadata);
    }

    fn finish(&mut self, outcome: Option<AgUiOutcome>, usage: Vec<AgUiUsage>, metadata: Map<String, Value>) {
        let outcome = outcome.filter(|outcome| is_known_to(outcome, self.segment.dialect));
        let (thread_id, run_id) = (self.segment.thread_id.clone(), self.segment.run_id.clone());
        self.emit_with(AgUiKind::RunFinished { thread_id, run_id, outcome, usage }, metadata);
        self.phase = AgUiPhase::Done;
    }

    pub(super) fn fail(&mut self, message: String, code: String, metadata: Map<String, Value>) {
        // A failure may come before anything was read.
        self.phase = AgUiPhase::Live;
        self.emit_with(AgUiKind::RunError { message, code: Some(code) }, metadata);
        self.phase = AgUiPhase::Done;
    }
}

/// In the older dialect a run that succeeds has no outcome: clients from before outcomes read that too.
const fn is_known_to(outcome: &AgUiOutcome, dialect: AgUiDialect) -> bool {
    match (dialect, outcome) {
        (AgUiDialect::V1_0, _) | (AgUiDialect::Before, AgUiOutcome::Interrupt { .. }) => true,
        (AgUiDialect::Before, AgUiOutcome::Success { .. } | AgUiOutcome::Cancelled) => false,
    }
}

fn verdict(end: &RunEnd) -> AgUiVerdict {
    match end {
        RunEnd::Completed {
            reason: CompletedReason::NaturalEnd | CompletedReason::BehaviorRequested,
            ..
        } => AgUiVerdict::Success,
        RunEnd::Completed { reason: CompletedReason::Stopped, code, .. } => {
            let code = code.as_deref().unwrap_or_default();
            if CONFIGURED_STOPS.contains(&code) { AgUiVerdict::Success } else { AgUiVerdict::Stopped }
        }
        RunEnd::Failed { blocked: true, .. } => AgUiVerdict::Stopped,
        RunEnd::Failed { code, message, blocked: false } => {
            AgUiVerdict::Error { code: code.clone(), message: message.clone() }
        }
        RunEnd::Interrupted { .. } => AgUiVerdict::Interrupted,
    }
}

/// How the run ended in Holdpoint's words, if not by itself.
fn end_metadata(end: &RunEnd) -> Map<String, Value> {
    let pairs = match end {
        RunEnd::Completed { reason: CompletedReason::NaturalEnd, .. } => return Map::new(),
        RunEnd::Completed { reason: CompletedReason::BehaviorRequested, .. } => {
            vec![("reason", Some("behavior_requested"))]
        }
        RunEnd::Completed { reason: CompletedReason::Stopped, code, detail } => {
            vec![("reason", Some("stopped")), ("code", code.as_deref()), ("detail", detail.as_deref())]
        }
        RunEnd::Failed { code, message, blocked } => {
            let reason = if *blocked { "blocked" } else { "error" };
            vec![("reason", Some(reason)), ("code", Some(code.as_str())), ("detail", Some(message.as_str()))]
        }
        RunEnd::Interrupted { code, by } => {
            vec![("reason", Some("cancelled")), ("code", code.as_deref()), ("by", by.as_deref())]
        }
    };
    let known = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Map::from_iter([("holdpoint".to_owned(), Value::Object(known.collect()))])
}
